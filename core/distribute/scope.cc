#include <atomic>
#include <thread>

#include "core/base/notice.h"
#include "core/distribute/replica_scope.h"

namespace cohort {

namespace {
thread_local uint64_t t_entered = 0;
}  // namespace

// Of a strategy's scope, or a colocation.
struct Entered {
  std::thread::id thread = std::this_thread::get_id();
  uint64_t number = ++t_entered;   // in the order in which this thread has entered them
  std::atomic<bool> left = false;  // possibly by another thread
};

struct ScopeEntry : Entered {
  Strategy* strategy;
  std::string name_scope;  // that was open when the scope was entered

  ScopeEntry(Strategy& entered, std::string open)
      : strategy(&entered), name_scope(std::move(open)) {}
  std::string text() const { return str("the scope of ", strategy->name()); }
};

struct ColocationEntry : Entered {
  const Strategy* strategy;
  std::shared_ptr<Variable> variable;

  ColocationEntry(const Strategy& of, std::shared_ptr<Variable> with)
      : strategy(&of), variable(std::move(with)) {}
  std::string text() const {
    return str("the colocation with variable \"", variable->name(), "\"");
  }
};

namespace {

// What was entered on this thread, the innermost last. What was left out of order stays until that
// inside it is left.
template <typename Entry>
using Stack = std::vector<std::shared_ptr<Entry>>;
thread_local Stack<ScopeEntry> t_scopes;
thread_local Stack<ColocationEntry> t_colocations;
thread_local const ReplicaContext* t_replica = nullptr;

// Null where there is none.
template <typename Entry>
std::shared_ptr<Entry> innermost(Stack<Entry>& stack) {
  while (!stack.empty() && stack.back()->left) stack.pop_back();
  return stack.empty() ? nullptr : stack.back();
}

template <typename Entry>
void require_innermost(Stack<Entry>& stack, const std::shared_ptr<Entry>& entry) {
  if (entry->left) fail(Code::kFailedPrecondition, entry->text(), " was left already");
  if (entry->thread != std::this_thread::get_id())
    fail(Code::kFailedPrecondition, entry->text(),
         " was entered on another thread, and can be left only there");
  if (innermost(stack) != entry)
    fail(Code::kFailedPrecondition, entry->text(),
         " is not the innermost one: leave those entered inside it first");
}

// The innermost of the other kind where it was entered inside `entry`, else null.
template <typename Other>
std::shared_ptr<Other> inside(Stack<Other>& others, const Entered& entry) {
  auto open = innermost(others);
  return open != nullptr && open->number > entry.number ? open : nullptr;
}

// Refuses to leave `entry` where one of the other kind, entered inside it, is still open.
template <typename Other>
void require_none_inside(Stack<Other>& others, const Entered& entry, const std::string& text) {
  if (const auto open = inside(others, entry))
    fail(Code::kFailedPrecondition, text, " is left while ", open->text(),
         ", entered inside it, is still open");
}

// For destructors.
template <typename Entry, typename Other>
void leave_in_any_order(Stack<Entry>& stack, Stack<Other>& others,
                        const std::shared_ptr<Entry>& entry) {
  if (entry->left) return;
  const bool here = entry->thread == std::this_thread::get_id();
  if (!here || innermost(stack) != entry || inside(others, *entry) != nullptr)
    print_notice(str("warning: ", entry->text(),
                     " is left in another order, or on another thread, than it was entered\n"));
  entry->left = true;
  if (here) innermost(stack);
}

// The strategy of the innermost scope, or null outside any.
Strategy* entered_strategy() {
  const auto scope = innermost(t_scopes);
  return scope == nullptr ? nullptr : scope->strategy;
}

}  // namespace

Strategy::Scope Strategy::scope() { return Scope(*this); }

Strategy::Scope::Scope(Strategy& strategy)
    : entry_(std::make_shared<ScopeEntry>(strategy, NameScope::current())) {
  if (t_replica != nullptr)
    fail(Code::kFailedPrecondition, "the scope of ", strategy.name(),
         " cannot be entered inside a replica, which is in the scope of its strategy already");
  const Strategy* outer = entered_strategy();
  if (outer != nullptr && outer != &strategy)
    fail(Code::kFailedPrecondition, "the scope of ", strategy.name(),
         " cannot be entered inside the scope of ", outer->name(), "; leave that one first");
  t_scopes.push_back(entry_);
}

void Strategy::Scope::exit() {
  require_innermost(t_scopes, entry_);
  if (NameScope::current() != entry_->name_scope)
    fail(Code::kFailedPrecondition, entry_->text(), " is left while the name scope \"",
         NameScope::current(), "\" entered inside it is still open");
  require_none_inside(t_colocations, *entry_, entry_->text());
  entry_->left = true;
  t_scopes.pop_back();
}

Strategy::Scope::~Scope() { leave_in_any_order(t_scopes, t_colocations, entry_); }

Strategy::Colocation Strategy::colocate_vars_with(const std::shared_ptr<Variable>& variable) {
  return {*this, variable};
}

std::shared_ptr<Variable> Strategy::colocated_with() const {
  const auto colocation = innermost(t_colocations);
  return colocation != nullptr && colocation->strategy == this ? colocation->variable : nullptr;
}

Strategy::Colocation::Colocation(Strategy& strategy, const std::shared_ptr<Variable>& variable)
    : entry_(std::make_shared<ColocationEntry>(strategy, variable)) {
  if (&current_strategy() != &strategy)
    fail(Code::kFailedPrecondition, strategy.name(),
         "::colocate_vars_with is for variables made under it, and ", current_strategy().name(),
         " is current: enter its scope");
  if (variable == nullptr) invalid(strategy.name(), "::colocate_vars_with needs a variable");
  if (!strategy.is_home_of(*variable))
    invalid("variables of ", strategy.name(), " cannot be colocated with variable \"",
            variable->name(), "\", which lives elsewhere; name one that was made under it");
  t_colocations.push_back(entry_);
}

void Strategy::Colocation::exit() {
  require_innermost(t_colocations, entry_);
  require_none_inside(t_scopes, *entry_, entry_->text());
  entry_->left = true;
  t_colocations.pop_back();
}

Strategy::Colocation::~Colocation() { leave_in_any_order(t_colocations, t_scopes, entry_); }

ReplicaScope::ReplicaScope(Strategy& strategy)
    : scope_(strategy), context_(strategy), previous_(t_replica) {
  t_replica = &context_;
}

ReplicaScope::~ReplicaScope() { t_replica = previous_; }

const ReplicaContext* get_replica_context() {
  static const ReplicaContext alone(default_strategy());
  if (t_replica != nullptr) return t_replica;
  return entered_strategy() == nullptr ? &alone : nullptr;
}

bool in_cross_replica_context() { return get_replica_context() == nullptr; }

bool has_strategy() { return &current_strategy() != &default_strategy(); }

Strategy& current_strategy() {
  Strategy* entered = entered_strategy();
  return entered == nullptr ? default_strategy() : *entered;
}

}  // namespace cohort
