#include <atomic>
#include <thread>

#include "core/base/notice.h"
#include "core/distribute/replica_scope.h"

namespace cohort {

struct ScopeEntry {
  Strategy* strategy;
  std::string name_scope;  // that was open when the scope was entered
  std::thread::id thread = std::this_thread::get_id();
  std::atomic<bool> left = false;  // possibly by another thread

  ScopeEntry(Strategy& entered, std::string open)
      : strategy(&entered), name_scope(std::move(open)) {}
};

namespace {

// The scopes entered on this thread, the innermost last. Those left out of order stay until the
// inner ones are left.
thread_local std::vector<std::shared_ptr<ScopeEntry>> t_scopes;
thread_local const ReplicaContext* t_replica = nullptr;
thread_local const Strategy::Colocation* t_colocation = nullptr;

void pop_left_scopes() {
  while (!t_scopes.empty() && t_scopes.back()->left) t_scopes.pop_back();
}

// The strategy of the innermost scope, or null outside any.
Strategy* entered_strategy() {
  pop_left_scopes();
  return t_scopes.empty() ? nullptr : t_scopes.back()->strategy;
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
  if (entry_->left) fail(Code::kFailedPrecondition, "this strategy scope was left already");
  if (entry_->thread != std::this_thread::get_id())
    fail(Code::kFailedPrecondition, "the scope of ", entry_->strategy->name(),
         " was entered on another thread, and can be left only there");
  pop_left_scopes();
  if (t_scopes.back() != entry_)
    fail(Code::kFailedPrecondition, "the scope of ", entry_->strategy->name(),
         " is not the innermost strategy scope: leave those entered inside it first");
  if (NameScope::current() != entry_->name_scope)
    fail(Code::kFailedPrecondition, "the scope of ", entry_->strategy->name(),
         " is left while the name scope \"", NameScope::current(),
         "\" entered inside it is still open");
  entry_->left = true;
  t_scopes.pop_back();
}

Strategy::Scope::~Scope() {
  if (entry_->left) return;
  const bool here = entry_->thread == std::this_thread::get_id();
  if (here) pop_left_scopes();
  if (!here || t_scopes.back() != entry_)
    print_notice(str("warning: the scope of ", entry_->strategy->name(),
                     " is left in another order, or on another thread, than it was entered\n"));
  entry_->left = true;
  if (here) pop_left_scopes();
}

Strategy::Colocation Strategy::colocate_vars_with(const std::shared_ptr<Variable>& variable) {
  return {*this, variable};
}

std::shared_ptr<Variable> Strategy::colocated_with() const {
  return t_colocation != nullptr && t_colocation->strategy_ == this ? t_colocation->variable_
                                                                    : nullptr;
}

Strategy::Colocation::Colocation(Strategy& strategy, const std::shared_ptr<Variable>& variable)
    : strategy_(&strategy), variable_(variable), outer_(t_colocation) {
  if (&current_strategy() != &strategy)
    fail(Code::kFailedPrecondition, strategy.name(),
         "::colocate_vars_with is for variables made under it, and ", current_strategy().name(),
         " is current: enter its scope");
  if (variable == nullptr) invalid(strategy.name(), "::colocate_vars_with needs a variable");
  if (!strategy.is_home_of(*variable))
    invalid("variables of ", strategy.name(), " cannot be colocated with variable \"",
            variable->name(), "\", which lives elsewhere; name one that was made under it");
  t_colocation = this;
}

Strategy::Colocation::~Colocation() { t_colocation = outer_; }

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
