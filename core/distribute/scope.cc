#include <algorithm>
#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/base/notice.h"
#include "core/distribute/replica_scope.h"

namespace cohort {

// Of a strategy's scope, or a colocation.
struct Entered {
  Strategy* const strategy;
  const std::weak_ptr<const void> lifetime;  // of the strategy, which may end first
  const std::string strategy_name;
  const std::shared_ptr<Variable> variable;  // of a colocation, which a scope has none of
  const std::string name_scope = NameScope::current();
  const std::thread::id thread = std::this_thread::get_id();
  std::atomic<bool> left = false;  // possibly by another thread

  explicit Entered(Strategy& of, std::shared_ptr<Variable> with = nullptr)
      : strategy(&of),
        lifetime(of.lifetime()),
        strategy_name(of.name()),
        variable(std::move(with)) {}
  std::string text() const {
    return variable == nullptr ? str("the scope of ", strategy_name)
                               : str("the colocation with variable \"", variable->name(), "\"");
  }
};

namespace {

// Whether this thread's list has gone: scopes with static storage are left later.
thread_local bool t_list_has_gone = false;
struct EnteredList : std::vector<std::shared_ptr<Entered>> {
  ~EnteredList() { t_list_has_gone = true; }
};
// What was entered on this thread, the innermost last. What was left out of order stays until that
// inside it is left.
thread_local EnteredList t_entered;
thread_local const ReplicaContext* t_replica = nullptr;

void drop_left() {
  while (!t_entered.empty() && t_entered.back()->left) t_entered.pop_back();
}

// The innermost one that is open, null where there is none.
const Entered* innermost() {
  drop_left();
  return t_entered.empty() ? nullptr : t_entered.back().get();
}

// The same of colocations or of scopes alone.
const Entered* innermost(bool is_colocation) {
  drop_left();
  const auto entry = std::find_if(t_entered.rbegin(), t_entered.rend(), [&](const auto& e) {
    return !e->left && (e->variable != nullptr) == is_colocation;
  });
  return entry == t_entered.rend() ? nullptr : entry->get();
}

void require_innermost(const Entered& entry) {
  if (entry.left) fail(Code::kFailedPrecondition, entry.text(), " was left already");
  const Entered* open = innermost();
  // The thread may have ended, and this one have its number.
  if (entry.thread != std::this_thread::get_id() || open == nullptr)
    fail(Code::kFailedPrecondition, entry.text(),
         " was entered on another thread, and can be left only there");
  if (open != &entry)
    fail(Code::kFailedPrecondition, entry.text(), " is not the innermost one: leave ", open->text(),
         ", entered inside it, first");
}

void leave(Entered& entry) {
  entry.left = true;
  if (entry.thread == std::this_thread::get_id()) drop_left();
}

// For destructors.
void leave_in_any_order(Entered& entry) {
  if (entry.left || t_list_has_gone) return;
  if (entry.thread != std::this_thread::get_id() || innermost() != &entry)
    print_notice(str("warning: ", entry.text(),
                     " is left in another order, or on another thread, than it was entered\n"));
  leave(entry);
}

// The strategy of the innermost scope, or null outside any. kFailedPrecondition once it has ended.
Strategy* entered_strategy() {
  const Entered* scope = innermost(false);
  if (scope == nullptr) return nullptr;
  if (scope->lifetime.expired())
    fail(Code::kFailedPrecondition, scope->text(),
         " is current, and that strategy has ended: declare the strategy before its scope, and "
         "where it lives as long");
  return scope->strategy;
}

}  // namespace

Strategy::Scope Strategy::scope() & { return Scope(*this); }

Strategy::Scope::Scope(Strategy& strategy) : entry_(std::make_shared<Entered>(strategy)) {
  if (t_replica != nullptr)
    fail(Code::kFailedPrecondition, "the scope of ", strategy.name(),
         " cannot be entered inside a replica, which is in the scope of its strategy already");
  const Strategy* outer = entered_strategy();
  if (outer != nullptr && outer != &strategy)
    fail(Code::kFailedPrecondition, "the scope of ", strategy.name(),
         " cannot be entered inside the scope of ", outer->name(), "; leave that one first");
  t_entered.push_back(entry_);
  strategy.note_entered();
}

void Strategy::Scope::exit() {
  require_innermost(*entry_);
  if (NameScope::current() != entry_->name_scope)
    fail(Code::kFailedPrecondition, entry_->text(), " is left while the name scope \"",
         NameScope::current(), "\" entered inside it is still open");
  leave(*entry_);
}

Strategy::Scope::~Scope() { leave_in_any_order(*entry_); }

Strategy::Colocation Strategy::colocate_vars_with(const std::shared_ptr<Variable>& variable) {
  return {*this, variable};
}

std::shared_ptr<Variable> Strategy::colocated_with() const {
  const Entered* colocation = innermost(true);
  const bool is_here = colocation != nullptr && colocation->strategy == this &&
                       !colocation->lifetime.expired();  // else another one lives in its place
  return is_here ? colocation->variable : nullptr;
}

Strategy::Colocation::Colocation(Strategy& strategy, const std::shared_ptr<Variable>& variable)
    : entry_(std::make_shared<Entered>(strategy, variable)) {
  if (&current_strategy() != &strategy)
    fail(Code::kFailedPrecondition, strategy.name(),
         "::colocate_vars_with is for variables made under it, and ", current_strategy().name(),
         " is current: enter its scope");
  if (variable == nullptr) invalid(strategy.name(), "::colocate_vars_with needs a variable");
  if (!strategy.is_home_of(*variable))
    invalid("variables of ", strategy.name(), " cannot be colocated with variable \"",
            variable->name(), "\", which lives elsewhere; name one that was made under it");
  t_entered.push_back(entry_);
}

void Strategy::Colocation::exit() {
  require_innermost(*entry_);
  leave(*entry_);
}

Strategy::Colocation::~Colocation() { leave_in_any_order(*entry_); }

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
