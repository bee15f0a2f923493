#include "strategies/parameter_server/own_variable.h"

#include <algorithm>
#include <utility>

#include "core/base/error.h"
#include "core/runtime/aggregation.h"
#include "strategies/parameter_server/replica_parts.h"

namespace cohort {

using parameter_server::can_be_merged;

OwnVariable::OwnVariable(std::shared_ptr<Variable> own, ServerVariable::Options on_servers,
                         std::shared_ptr<ServerSession> session)
    : Variable(on_servers.variable),
      own_(std::move(own)),
      on_servers_(std::move(on_servers)),
      session_(std::move(session)) {}

Tensor OwnVariable::present() const {
  return can_be_merged(*this) ? own_->value() : own_->storage(0).clone();
}

std::shared_ptr<ServerVariable> OwnVariable::share() {
  COHORT_CHECK(!is_apart());
  const std::lock_guard lock(mutex_);
  if (shared_ != nullptr) return shared_;
  ServerVariable::Options options = on_servers_;
  options.variable.initial_value = [this] { return present(); };
  auto made = std::make_shared<ServerVariable>(options, session_);
  made->info();
  if (assigned_) made->assign(present());
  return shared_ = std::move(made);
}

std::shared_ptr<ServerVariable> OwnVariable::shared() const {
  const std::lock_guard lock(mutex_);
  return shared_;
}

Tensor OwnVariable::load_value() const {
  require_value(*this);
  const auto shared = this->shared();
  return shared != nullptr ? shared->value() : own_->value();
}

void OwnVariable::change(const std::function<void(Variable& variable)>& change) {
  const std::lock_guard lock(mutex_);
  if (shared_ != nullptr) return change(*shared_);
  change(*own_);
  assigned_ = true;
}

void OwnVariable::store_value(const Tensor& value) {
  require_value(*this);
  change([&](Variable& variable) { variable.assign(value); });
}

void OwnVariable::add_value(const Tensor& delta) {
  require_addable(*this);
  change([&](Variable& variable) { variable.assign_add(delta); });
}

void OwnVariable::subtract_value(const Tensor& delta) {
  require_addable(*this);
  change([&](Variable& variable) { variable.assign_sub(delta); });
}

void OwnVariable::scatter_values(ScatterOp op, const Tensor& indices, const Tensor& updates) {
  if (synchronization() == Synchronization::kOnRead)
    return Variable::scatter_values(op, indices, updates);
  change([&](Variable& variable) { variable.scatter(op, indices, updates); });
}

void OwnVariable::pulled(const ServerVariable::Places& places,
                         const std::vector<UpdateResult>& results) {
  const auto shared = this->shared();
  shared->pulled(places, results, true);
  bool is_current = true;
  for (size_t shard = 0; shard < places.size(); ++shard) {
    const auto server = static_cast<size_t>(on_servers_.servers[shard]);
    is_current &= results[server].pulled[static_cast<size_t>(places[shard])].was_current;
  }
  if (is_current) return;
  if (can_be_merged(*this)) return own_->assign(shared->storage(0));
  for (int r = 0; r < num_replicas(); ++r) own_->storage(r).assign(shared->storage(0));
}

void OwnVariable::begin_read_outside() {
  const auto shared = this->shared();
  if (shared == nullptr) return;
  ServerVariable::Calls calls(static_cast<size_t>(session_->num_servers()));
  const auto places = shared->add_pull(calls);
  pulled(places, session_->update(calls));
}

void OwnVariable::end_write_outside() {
  if (shared() != nullptr) written();
}

void OwnVariable::written() { shared()->assign(present()); }

}  // namespace cohort
