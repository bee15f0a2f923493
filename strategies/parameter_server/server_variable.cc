#include "strategies/parameter_server/server_variable.h"

#include <map>
#include <set>
#include <utility>

#include "core/base/error.h"
#include "core/ops/math_ops.h"
#include "core/runtime/function.h"
#include "strategies/parameter_server/row_gradient.h"
#include "strategies/parameter_server/variable_rows.h"

namespace cohort {
namespace {

using parameter_server::refuse_row;
using parameter_server::rows_of;

// The rule of a variable that no optimizer moves.
class AddRule final : public optim::UpdateRule {
 public:
  std::vector<Slot> slots() const override { return {}; }
  std::vector<Value> scalars(const Value&, const Value&) const override { return {}; }
  Value update(const Value& variable, const Value& delta, std::vector<Value>&,
               const std::vector<Value>&) const override {
    return variable + delta;
  }
  bool row_wise() const override { return true; }
};

// A slot of an optimizer's rule, kept beside the variable that it is for.
class SlotVariable final : public Variable, public RowVariable {
 public:
  SlotVariable(std::string name, std::shared_ptr<ServerVariable> of, int part)
      : Variable({.name = std::move(name), .spec = of->spec(), .trainable = false}),
        of_(std::move(of)),
        part_(part) {}

  bool has_rows_on_first_use() const override { return of_->is_lazy(); }
  VariableRows rows_in_use() const override { return of_->rows_in_use(part_); }
  void assign_rows(const VariableRows& rows) override { of_->assign_rows(rows, part_); }
  Tensor storage(int) override { elsewhere(); }
  int num_replicas() const override { return of_->num_replicas(); }
  std::vector<Device> devices() const override { return {}; }

 protected:
  Tensor load_value() const override { return of_->read_part(part_); }
  void store_value(const Tensor& value) override { of_->write_part(part_, value); }
  void add_value(const Tensor&) override { elsewhere(); }
  void subtract_value(const Tensor&) override { elsewhere(); }
  void scatter_values(ScatterOp, const Tensor&, const Tensor&) override { elsewhere(); }

 private:
  [[noreturn]] void elsewhere() const {
    fail(Code::kFailedPrecondition, "\"", name(), "\" is kept by parameter servers beside \"",
         of_->name(), "\": outside functions it can be read and assigned");
  }

  const std::shared_ptr<ServerVariable> of_;
  const int part_;
};

ServerVariableInfo info_of(const ServerVariable::Options& options) {
  const VariableOptions& variable = options.variable;
  ServerVariableInfo info{.name = variable.name,
                          .spec = variable.spec,
                          .trainable = variable.trainable,
                          .aggregation = variable.aggregation,
                          .on_read = variable.synchronization == Synchronization::kOnRead,
                          .key = options.key.empty() ? variable.name : options.key,
                          .lazy = options.lazy.has_value(),
                          .servers = options.servers};
  if (variable.spec.dtype == DType::kBool) return info;
  info.update = ServerVariableInfo::Update::kAdd;
  info.by_rows = variable.spec.shape.rank() > 0;
  return info;
}

VariableOptions options_of(const ServerVariableInfo& info) {
  return {.name = info.name,
          .spec = info.spec,
          .trainable = info.trainable,
          .synchronization = info.on_read ? Synchronization::kOnRead : Synchronization::kAuto,
          .aggregation = info.aggregation};
}

// Traced once for each number of rows that a shard has: two at most.
std::vector<ServerUpdate> trace_updates(const ServerVariableInfo& info,
                                        const optim::UpdateRule& rule, double decay) {
  std::map<int64_t, ServerUpdate> traced;
  std::vector<ServerUpdate> updates;
  for (size_t i = 0; i < info.num_shards(); ++i) {
    const auto [it, is_new] = traced.try_emplace(info.shard_range(i).rows());
    TensorSpec spec = info.shard_spec(i);
    // A table has no update of all rows, and that of a block does not depend on their number.
    if (info.lazy) spec.shape = spec.shape.with_dim(0, 1);
    if (is_new) it->second = trace_update(rule, spec, decay);
    if (info.lazy) it->second.dense.clear();
    updates.push_back(it->second);
  }
  return updates;
}

Tensor negated(const Tensor& tensor) {
  return function([](Value x) { return -x; })({tensor})[0];
}

std::vector<int> distinct(const std::vector<int>& servers) {
  const std::set<int> set(servers.begin(), servers.end());
  return {set.begin(), set.end()};
}

void require_rows(const ServerVariable& variable, const Tensor& indices) {
  const Tensor numbers = indices.cast(DType::kInt64);
  for (const int64_t row : numbers.values<int64_t>())
    if (row < 0 || row >= variable.spec().shape[0]) refuse_row(variable, row, 0);
}

void require_numbers(const ServerVariable& variable) {
  if (variable.spec().dtype == DType::kBool)
    fail(Code::kUnimplemented, "variable \"", variable.name(), "\" is ", variable.spec(),
         ": nothing can be added to it or subtracted from it");
}

void require_same_spec(const ServerVariable& variable, const Tensor& value) {
  if (value.spec() != variable.spec())
    invalid("variable \"", variable.name(), "\" is ", variable.spec(), ", got ", value.spec());
}

}  // namespace

ServerVariable::ServerVariable(const Options& options, std::shared_ptr<ServerSession> session)
    : Variable(options.variable),
      session_(std::move(session)),
      num_replicas_(options.num_replicas),
      lazy_(options.lazy),
      is_lazy_(options.lazy.has_value()),
      servers_(options.servers),
      info_(std::make_shared<const ServerVariableInfo>(info_of(options))),
      key_(info_->key),
      initial_value_([variable = options.variable] { return make_initial_value(variable); }),
      initial_rows_(options.initial_rows),
      updates_(num_shards()),
      states_(num_shards()) {
  if (!is_lazy_ && !initial_rows_) require_initial_value(options.variable);
  if (info_->update == ServerVariableInfo::Update::kAdd)
    updates_ = trace_updates(*info_, AddRule(), 0);
}

ServerVariable::ServerVariable(const ServerVariableInfo& info,
                               std::shared_ptr<ServerSession> session, int num_replicas)
    : Variable(options_of(info)),
      session_(std::move(session)),
      num_replicas_(num_replicas),
      is_lazy_(info.lazy),
      servers_(info.servers),
      info_(std::make_shared<const ServerVariableInfo>(info)),
      key_(info.key),
      made_(true),
      states_(info.num_shards()) {
  if (info.on_read && num_replicas > 1) parts_.emplace(*this, num_replicas);
}

ServerVariable::InfoPtr ServerVariable::present_info() const {
  const std::lock_guard lock(mutex_);
  return info_;
}

bool ServerVariable::has_shards() const {
  const std::lock_guard lock(mutex_);
  return made_;
}

std::vector<ServerVariable::ShardState> ServerVariable::states() const {
  const std::lock_guard lock(mutex_);
  return states_;
}

void ServerVariable::await_nothing() {
  const std::lock_guard lock(mutex_);
  for (ShardState& state : states_) state.awaited = 0;
}

ShardSpec ServerVariable::shard_spec(const ServerVariableInfo& info, size_t shard) const {
  const RowRange range = info.shard_range(shard);
  return {.name = info.shard_name(shard),
          .variable = info.key,
          .whole = info.spec,
          .begin = range.begin,
          .rows = range.rows(),
          .update = updates_[shard],
          .lazy = lazy_};
}

Tensor ServerVariable::initial_of(const RowRange& rows, std::once_flag& once, Tensor& whole) const {
  if (initial_rows_) return initial_rows_(rows);
  std::call_once(once, [&] { whole = initial_value_(); });
  return rows_of(whole, rows);
}

ServerVariable::InfoPtr ServerVariable::make_shards() const {
  const std::lock_guard lock(mutex_);
  if (made_) return info_;
  const ServerVariableInfo& info = *info_;
  std::once_flag once;
  Tensor whole;
  session_->on_servers(distinct(servers_), [&](int server) {
    for (size_t i = 0; i < num_shards(); ++i) {
      if (servers_[i] != server) continue;
      session_->client(server).create(shard_spec(info, i),
                                      [&] { return initial_of(info.shard_range(i), once, whole); });
      if (!rows_of_.empty()) take_over_rows(info, i);
    }
  });
  made_ = true;
  return info_;
}

std::vector<std::shared_ptr<Variable>> ServerVariable::move_by(
    const optim::UpdateRule& rule, double weight_decay,
    const std::vector<std::string>& slot_names) {
  if (lazy_ && (!rule.row_wise() || weight_decay != 0))
    invalid("the rows of variable \"", name(), "\" are made on first use, and ",
            weight_decay != 0 ? "weight decay" : "this optimizer",
            " moves all rows at each step; choose SGD without momentum, Adagrad or Adam with lazy, "
            "without decay");
  // Before anything changes, because it may fail.
  const bool had_shards = has_shards();
  const Tensor present = had_shards && !lazy_ ? read_part(0) : Tensor();
  auto info = std::make_shared<ServerVariableInfo>(*present_info());
  std::vector<ServerUpdate> updates = trace_updates(*info, rule, weight_decay);
  info->update = ServerVariableInfo::Update::kRule;
  info->by_rows = !updates[0].by_rows.empty();
  info->slots.clear();
  for (const auto& slot : rule.slots()) info->slots.push_back(slot.name);
  const std::lock_guard lock(mutex_);
  if (present.defined()) {
    initial_value_ = [value = present] { return value; };
    initial_rows_ = {};
  }
  if (had_shards && lazy_) rows_of_ = info_->key;
  updates_ = std::move(updates);
  info->key = ServerVariableInfo::optimizer_key(key_, ++rules_);
  info_ = std::move(info);
  made_ = false;
  states_.assign(num_shards(), {});
  std::vector<std::shared_ptr<Variable>> slots;
  for (const std::string& slot : slot_names)
    slots.push_back(std::make_shared<SlotVariable>(
        slot, std::static_pointer_cast<ServerVariable>(shared_from_this()),
        static_cast<int>(slots.size()) + 1));
  return slots;
}

std::vector<ServerVariable::Shard> ServerVariable::shards() {
  const Tensor whole = value();
  const InfoPtr info = present_info();
  std::vector<Shard> shards;
  for (size_t i = 0; i < num_shards(); ++i) {
    const RowRange range = info->shard_range(i);
    shards.push_back({str(name(), "/part_", i), servers_[i], range, rows_of(whole, range)});
  }
  return shards;
}

Tensor ServerVariable::load_value() const { return read_part(0); }

void ServerVariable::require_all_rows(const char* call) const {
  if (is_lazy_)
    fail(Code::kUnimplemented, "variable \"", name(), "\" ", spec(),
         " makes its rows on first use, and is not ", call,
         " as a whole; the servers' snapshots have it");
}

Tensor ServerVariable::read_part(int part) const {
  require_all_rows("read");
  const InfoPtr info = make_shards();
  const std::vector<ShardState> states = this->states();
  Tensor whole(spec().dtype, spec().shape);
  std::vector<ServerSession::Call> calls(static_cast<size_t>(session_->num_servers()));
  for (size_t i = 0; i < num_shards(); ++i) {
    ShardPull pull = pull_of(*info, states[i], i, calls);
    pull.target = rows_of(whole, info->shard_range(i));
    pull.part = part;
    calls[static_cast<size_t>(servers_[i])].pulls.push_back(std::move(pull));
  }
  session_->update(calls);
  return whole;
}

void ServerVariable::store_value(const Tensor& value) { write_part(0, value); }

void ServerVariable::write_part(int part, const Tensor& value) {
  require_all_rows("assigned");
  require_same_spec(*this, value);
  const InfoPtr info = make_shards();
  session_->on_servers(distinct(servers_), [&](int server) {
    for (size_t i = 0; i < num_shards(); ++i)
      if (servers_[i] == server)
        session_->client(server).assign(info->shard_name(i), rows_of(value, info->shard_range(i)),
                                        part);
  });
  await_nothing();
}

bool ServerVariable::takes_sums() const {
  return present_info()->update == ServerVariableInfo::Update::kAdd;
}

void ServerVariable::add(const Tensor& delta, const std::optional<Tensor>& indices) {
  make_shards();
  Calls calls(static_cast<size_t>(session_->num_servers()));
  add_push(calls, delta, indices, {});
  session_->update(calls);
}

void ServerVariable::add_value(const Tensor& delta) {
  require_all_rows("added to");
  require_numbers(*this);
  require_same_spec(*this, delta);
  if (takes_sums()) return add(delta, {});
  Tensor sum = value();
  add_to(sum, delta);
  assign(sum);
}

void ServerVariable::subtract_value(const Tensor& delta) {
  require_all_rows("subtracted from");
  require_numbers(*this);
  add_value(negated(delta));
}

void ServerVariable::scatter_values(ScatterOp op, const Tensor& indices, const Tensor& updates) {
  const bool is_sum = op == ScatterOp::kAdd || op == ScatterOp::kSub;
  if (takes_sums() && is_sum && present_info()->by_rows) {
    require_rows(*this, indices);
    return add(op == ScatterOp::kAdd ? updates : negated(updates), indices);
  }
  auto copy = make_local_variable(
      {.name = name(), .spec = spec(), .initial_value = [this] { return value(); }});
  copy->scatter(op, indices, updates);
  assign(copy->value());
}

Tensor ServerVariable::storage(int replica) {
  require_replica(replica);
  return parts_ ? parts_->of(replica) : whole_storage();
}

// Of several plans one does so. The others find it done, and write nothing that is being read.
void ServerVariable::begin_read_outside() {
  const std::lock_guard lock(reading_);
  Calls calls(static_cast<size_t>(session_->num_servers()));
  const Places places = add_pull(calls);
  pulled(places, session_->update(calls), true);
}

Tensor ServerVariable::whole_storage() {
  if (is_lazy_)
    invalid("variable \"", name(), "\" ", spec(),
            " makes its rows on first use: a function can only look rows of axis 0 up, by numbers "
            "that follow from its inputs, and only where a strategy runs it");
  const std::lock_guard lock(mutex_);
  if (!storage_.defined()) storage_ = Tensor::zeros(spec().dtype, spec().shape);
  return storage_;
}

Tensor ServerVariable::written_value() {
  return parts_ ? parts_->merged() : whole_storage().clone();
}

}  // namespace cohort
