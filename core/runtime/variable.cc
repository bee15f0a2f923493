#include "core/runtime/variable.h"

#include "core/graph/branch.h"
#include "core/runtime/aggregation.h"
#include "core/runtime/function.h"
#include "core/runtime/merged_variable.h"
#include "core/runtime/replica_group.h"
#include "core/runtime/variable_memory.h"

namespace cohort {
namespace {

void require_spec(const Variable& variable, const TensorSpec& spec) {
  if (spec != variable.spec())
    invalid("variable \"", variable.name(), "\" is ", variable.spec(), ", got ", spec);
}

void require_tensor(const Variable& variable, std::string_view call, const Tensor& given) {
  if (!given.defined())
    invalid("variable \"", variable.name(), "\": ", call,
            " was given a tensor that has no value; it was never assigned");
}

Tensor place_on(Device device, Tensor value, std::string_view name) {
  if (is_host(device)) return value;
  Tensor placed = allocate_tensor(device, value.spec(), str("variable \"", name, "\""));
  copy_between_devices(Device{}, value.raw(), device, placed.raw(), value.bytes());
  return placed;
}

void require_rows(const Variable& variable, const TensorSpec& indices, const TensorSpec& updates) {
  const TensorSpec& spec = variable.spec();
  if (spec.shape.rank() == 0)
    invalid("variable \"", variable.name(), "\" is ", spec, ", which has no rows to scatter to");
  if (indices.shape.rank() == 1 && is_integer(indices.dtype) &&
      updates == TensorSpec{spec.dtype, spec.shape.with_dim(0, indices.shape[0])})
    return;
  invalid("variable \"", variable.name(), "\" is ", spec,
          "; a scatter takes integer indices [n] and as many rows of it as updates, got ", indices,
          " and ", updates);
}

// Whether no strategy runs the function being traced.
bool is_outside() {
  const ReplicaGroup& group = traced_group();
  return group.strategy == 0 && group.num_replicas == 1;
}

// And the variable has copies that it has to keep together.
bool is_outside(const Variable& variable) {
  return is_outside() && !variable.other_copies().empty();
}

// The copies that the function being traced writes.
std::vector<std::shared_ptr<Variable>> written_copies(Variable& variable) {
  std::vector<std::shared_ptr<Variable>> copies = {variable.shared_from_this()};
  if (!is_outside(variable)) return copies;
  for (auto& copy : variable.other_copies()) copies.push_back(std::move(copy));
  return copies;
}

Value load(const std::shared_ptr<Variable>& copy) {
  return current_graph().add("ReadVariable", {}, {}, copy).output();
}

void store(const std::shared_ptr<Variable>& copy, const Value& value) {
  value.graph().add("AssignVariable", {value_to_write(copy, value)}, {}, copy);
}

// What the copies make when the function begins; once it has written them, what they make then.
Value load_merged(Variable& variable) {
  Graph& graph = current_graph();
  std::shared_ptr<Resource> merged;
  for (const auto& node : graph.nodes()) {
    if (node->resource() == &variable) {
      std::vector<Value> copies;
      for (const auto& copy : written_copies(variable)) copies.push_back(load(copy));
      return merge_copies(variable, copies);
    }
    if (merged_of(node->resource()) == &variable) merged = node->shared_resource();
  }
  require_value(variable);
  if (merged == nullptr) merged = make_merged_variable(variable.shared_from_this());
  return graph.add("ReadVariable", {}, {}, merged).output();
}

// `allow_none`: whether index -1, which names no row, is allowed. In a branch it is, for that is
// how one that does not count changes nothing.
void store(const std::shared_ptr<Variable>& copy, ScatterOp op, const RowUpdates& rows,
           bool allow_none) {
  Graph& graph = rows.indices.graph();
  const Value condition = BranchScope::condition(graph);
  // An index out of range shows only when the function runs; the node's name tells where.
  graph.add_named(
      str(copy->name(), "/AssignScatter"), "AssignScatter",
      {rows_if(condition, rows.indices), rows.updates},
      {{"op", static_cast<int64_t>(op)}, {"allow_none", allow_none || condition.defined()}}, copy);
}

// A write in the branch being traced, if there is one.
void require_branch(const Variable& variable, const Graph& graph) {
  const Value condition = BranchScope::condition(graph);
  if (!condition.defined()) return;
  if (variable.is_same_on_replicas() && !is_same_on_replicas(condition))
    invalid("variable \"", variable.name(),
            "\" is the same on all replicas, and is written in a branch whose condition may differ "
            "between them; reduce the condition first");
  if (variable.is_written_by_others())
    fail(Code::kUnimplemented, "variable \"", variable.name(),
         "\" is written by other workers too, and cannot be written in a branch: what the branch "
         "leaves as it is may have changed meanwhile");
}

// Adds the nodes of `write`. Where replicas share the copy that it writes, all have read it before,
// and none reads it until it is written.
template <typename F>
void between_barriers(const Variable& variable, Graph& graph, const F& write) {
  const bool is_one_copy =
      variable.is_shared() || variable.num_replicas() > static_cast<int>(variable.devices().size());
  const bool waits = is_one_copy && traced_group().num_replicas > 1;
  if (waits) graph.add("Barrier", {});
  write();
  if (waits) graph.add("Barrier", {});
}

void write(Variable& variable, const Value& value) {
  require_spec(variable, value.spec());
  if (is_outside(variable)) require_value(variable);
  require_branch(variable, value.graph());
  const Value aggregated = aggregate(variable, value);
  const auto copies = written_copies(variable);
  const auto parts = split_over_copies(variable, aggregated, copies.size());
  between_barriers(variable, value.graph(), [&] {
    for (size_t i = 0; i < copies.size(); ++i) store(copies[i], parts[i]);
  });
}

// Adds to the variable, or subtracts.
void change(Variable& variable, std::string_view op, const Value& delta) {
  require_spec(variable, delta.spec());
  if (is_outside(variable)) require_addable(variable);
  require_branch(variable, delta.graph());
  const Value aggregated = aggregate(variable, delta);
  between_barriers(variable, delta.graph(), [&] {
    for (const auto& copy : written_copies(variable))
      store(copy, delta.graph().add(op, {load(copy), aggregated}).output());
  });
}

void change_outside(Variable& variable, std::string_view op, const Tensor& delta) {
  require_spec(variable, delta.spec());
  function([&](const std::vector<Value>& inputs) {
    change(variable, op, inputs[0]);
    return std::vector<Value>{};
  })({delta});
}

class LocalVariable final : public Variable {
 public:
  LocalVariable(const VariableOptions& options, Device device)
      : Variable(options),
        device_(device),
        storage_(place_on(device, make_initial_value(options), options.name)) {}

  Tensor storage(int replica) override {
    require_replica(replica);
    return storage_;
  }
  int num_replicas() const override { return 1; }
  std::vector<Device> devices() const override { return {device_}; }

 protected:
  Tensor load_value() const override {
    if (is_host(device_)) return storage_.clone();
    Tensor copy(spec().dtype, spec().shape);
    copy_between_devices(device_, storage_.raw(), Device{}, copy.raw(), copy.bytes());
    return copy;
  }
  void store_value(const Tensor& value) override {
    if (is_host(device_)) return assign_storage(storage_, value);
    require_spec(*this, value.spec());
    copy_between_devices(Device{}, value.raw(), device_, storage_.raw(), value.bytes());
  }
  // However it is synchronised: there is one copy.
  void add_value(const Tensor& delta) override { change_outside(*this, "Add", delta); }
  void subtract_value(const Tensor& delta) override { change_outside(*this, "Sub", delta); }

 private:
  Device device_;
  Tensor storage_;
};

}  // namespace

Variable::Variable(const VariableOptions& options)
    : name_(options.name),
      spec_(options.spec),
      trainable_(options.trainable),
      synchronization_(options.synchronization),
      aggregation_(options.aggregation),
      constraint_(options.constraint) {
  if (is_made_on_read(*this) && aggregation_ == Aggregation::kMean) require_mean(*this);
}

Value Variable::read() {
  require_group();
  return is_outside() && is_merged() ? load_merged(*this) : load(shared_from_this());
}

Value Variable::assign(const Value& value) {
  require_group();
  write(*this, value);
  return read();
}

Value Variable::assign_add(const Value& delta) {
  require_group();
  change(*this, "Add", delta);
  return read();
}

Value Variable::assign_sub(const Value& delta) {
  require_group();
  change(*this, "Sub", delta);
  return read();
}

void Variable::scatter(ScatterOp op, const Value& indices, const Value& updates) {
  require_group();
  require_rows(*this, indices.spec(), updates.spec());
  if (synchronization_ == Synchronization::kOnRead)
    fail(Code::kUnimplemented, "variable \"", name_,
         "\" is synchronised on read, and has no scatter");
  require_branch(*this, indices.graph());
  const RowUpdates aggregated = aggregate(*this, op, {indices, updates});
  between_barriers(*this, indices.graph(), [&] {
    for (const auto& copy : written_copies(*this)) store(copy, op, aggregated, false);
  });
}

void Variable::update(const Value& value) {
  require_group();
  require_branch(*this, value.graph());
  for (const auto& copy : written_copies(*this)) store(copy, value);
}

void Variable::scatter_update(ScatterOp op, const Value& indices, const Value& updates) {
  require_group();
  require_branch(*this, indices.graph());
  // Combined gradients are filled up with -1.
  for (const auto& copy : written_copies(*this)) store(copy, op, {indices, updates}, true);
}

Tensor Variable::value() const {
  require_outside("value()", "read()");
  return load_value();
}

void Variable::assign(const Tensor& value) {
  require_outside("assign(const Tensor&)", "assign(const Value&)");
  require_tensor(*this, "assign", value);
  store_value(value);
}

void Variable::assign_add(const Tensor& delta) {
  require_outside("assign_add(const Tensor&)", "assign_add(const Value&)");
  require_tensor(*this, "assign_add", delta);
  add_value(delta);
}

void Variable::assign_sub(const Tensor& delta) {
  require_outside("assign_sub(const Tensor&)", "assign_sub(const Value&)");
  require_tensor(*this, "assign_sub", delta);
  subtract_value(delta);
}

void Variable::scatter(ScatterOp op, const Tensor& indices, const Tensor& updates) {
  require_outside("scatter of tensors", "scatter(ScatterOp, const Value&, const Value&)");
  for (const Tensor* given : {&indices, &updates}) require_tensor(*this, "scatter", *given);
  require_rows(*this, indices.spec(), updates.spec());
  scatter_values(op, indices, updates);
}

void Variable::store_value(const Tensor& value) {
  require_spec(*this, value.spec());
  function([this](const std::vector<Value>& inputs) {
    write(*this, inputs[0]);
    return std::vector<Value>{};
  })({value});
}

void Variable::add_value(const Tensor& delta) {
  require_addable(*this);
  change_outside(*this, "Add", delta);
}

void Variable::subtract_value(const Tensor& delta) {
  require_addable(*this);
  change_outside(*this, "Sub", delta);
}

void Variable::scatter_values(ScatterOp op, const Tensor& indices, const Tensor& updates) {
  function([&](const std::vector<Value>& inputs) {
    scatter(op, inputs[0], inputs[1]);
    return std::vector<Value>{};
  })({indices, updates});
}

void Variable::require_outside(std::string_view call, std::string_view instead) const {
  if (has_current_graph())
    fail(Code::kFailedPrecondition, "variable \"", name_, "\": ", call,
         " acts once, while the function that calls it is traced, and not when it runs; use ",
         instead, " there");
}

bool Variable::is_merged() const { return is_made_on_read(*this) && !other_copies().empty(); }

bool Variable::is_same_on_replicas() const { return is_written_together(synchronization_); }

void Variable::assign_storage(Tensor& storage, const Tensor& value) const {
  require_spec(*this, value.spec());
  storage.assign(value);
}

void Variable::set_strategy(uint64_t strategy, std::string name) {
  strategy_ = strategy;
  strategy_name_ = std::move(name);
}

void Variable::require_replica(int replica) const {
  if (replica >= num_replicas())
    fail(Code::kFailedPrecondition, "variable \"", name_, "\" was made for ", num_replicas(),
         num_replicas() == 1 ? " replica" : " replicas", ", and replica ", replica,
         " uses it; create it in the scope of the strategy that runs the function");
}

void Variable::require_group() const {
  const ReplicaGroup& group = traced_group();
  if (group.strategy == 0 || group.strategy == strategy_) return;
  if (strategy_ == 0 && group.num_replicas == num_replicas()) return;
  fail(Code::kFailedPrecondition, "variable \"", name_, "\" was made for ", num_replicas(),
       num_replicas() == 1 ? " replica" : " replicas",
       strategy_ == 0 ? " outside any scope" : " of " + strategy_name_, ", and a function of ",
       strategy_name_ == group.strategy_name ? "another " : "", group.strategy_name, " with ",
       group.num_replicas,
       " uses it; create it in the scope of the strategy that runs the function");
}

void require_initial_value(const VariableOptions& options) {
  if (!options.initial_value) invalid("variable \"", options.name, "\" has no initial value");
}

Tensor make_initial_value(const VariableOptions& options) {
  require_initial_value(options);
  Tensor value = options.initial_value();
  if (!value.defined())
    invalid("variable \"", options.name, "\" is ", options.spec,
            ", its initial_value returned a tensor that has no value");
  if (!(value.spec() == options.spec))
    invalid("variable \"", options.name, "\" is ", options.spec, ", its initial value is ",
            value.spec());
  // The storage must belong to the variable alone.
  return value.use_count() > 1 ? value.clone() : value;
}

std::shared_ptr<Variable> make_local_variable(const VariableOptions& options, Device device) {
  return std::make_shared<LocalVariable>(options, device);
}

}  // namespace cohort
