#include "strategies/variables/worker_variable.h"

#include "core/distribute/packing.h"
#include "core/runtime/aggregation.h"
#include "core/runtime/function.h"
#include "core/runtime/trace.h"
#include "core/runtime/variable_memory.h"
#include "strategies/variables/common_variable.h"
#include "strategies/variables/mirrored_variable.h"

namespace cohort {
namespace {

VariableOptions with_value(const VariableOptions& options, const Tensor& value) {
  VariableOptions result = options;
  result.initial_value = [value] { return value; };
  return result;
}

class WorkerVariable final : public Variable {
 public:
  WorkerVariable(const VariableOptions& options, const std::vector<Device>& devices,
                 std::shared_ptr<Workers> workers)
      : Variable(options),
        workers_(std::move(workers)),
        local_(make_mirrored_variable(options, devices)) {}

  Tensor storage(int replica) override { return local_->storage(replica); }
  int num_replicas() const override { return local_->num_replicas(); }
  std::vector<Device> devices() const override { return local_->devices(); }
  // Asked for by functions that no strategy runs, when they are traced and write it.
  std::vector<std::shared_ptr<Variable>> other_copies() const override {
    if (synchronization() == Synchronization::kOnRead && is_tracing_function()) refuse_outside();
    return local_->other_copies();
  }
  // Also where the first copy's value counts, which is the chief's.
  bool is_merged() const override {
    return synchronization() == Synchronization::kOnRead && workers_->size() * num_replicas() > 1;
  }
  // Such functions may be traced, to be saved; the workers do not run them together.
  Tensor merged_value() const override { refuse_outside(); }

 protected:
  Tensor load_value() const override {
    if (synchronization() != Synchronization::kOnRead) return local_->value();
    require_value(*this);
    const std::vector<Tensor> copies = all_copies();
    return function([this](const std::vector<Value>& values) {
      return std::vector{merge_copies(*this, values)};
    })(copies)[0];
  }
  void store_value(const Tensor& value) override {
    require_value(*this);
    if (!is_made_on_read(*this)) return local_->assign(value);
    if (value.spec() != spec())
      invalid("variable \"", name(), "\" is ", spec(), ", got ", value.spec());
    const auto replicas = static_cast<size_t>(num_replicas()),
               copies = replicas * static_cast<size_t>(workers_->size());
    const auto parts = function([&](const std::vector<Value>& values) {
      return split_over_copies(*this, values[0], copies);
    })({value});
    for (size_t r = 0; r < replicas; ++r) {
      const Tensor& part = parts[static_cast<size_t>(workers_->rank()) * replicas + r];
      copy_between_devices(Device{}, part.raw(), local_->devices()[r],
                           local_->storage(static_cast<int>(r)).raw(), part.bytes());
    }
  }
  // To every copy, by the worker that has it.
  void add_value(const Tensor& delta) override { local_->assign_add(delta); }
  void subtract_value(const Tensor& delta) override { local_->assign_sub(delta); }

 private:
  // A function that no strategy runs cannot reach the copies of other workers, without which there
  // is no merged value.
  [[noreturn]] void refuse_outside() const {
    fail(Code::kFailedPrecondition, "variable \"", name(),
         "\" is synchronised on read by all workers, and a function that no strategy runs has "
         "the copies of its own worker only: run it by the strategy's run(), or use value() and "
         "assign(const Tensor&), outside functions");
  }

  std::vector<Tensor> all_copies() const {
    Packer packer;
    for (int r = 0; r < num_replicas(); ++r) packer.add(copy_in_host_memory(r));
    std::vector<Tensor> copies;
    for (const auto& bytes :
         workers_->exchange(str("the reading of variable \"", name(), "\""), packer.bytes()))
      for (Unpacker unpacker(bytes); !unpacker.at_end();) copies.push_back(unpacker.tensor());
    return copies;
  }

  // The memory itself where the host can read it.
  Tensor copy_in_host_memory(int replica) const {
    Tensor memory = local_->storage(replica);
    const Device device = local_->devices()[static_cast<size_t>(replica)];
    if (is_host(device)) return memory;
    Tensor copy(spec().dtype, spec().shape);
    copy_between_devices(device, memory.raw(), Device{}, copy.raw(), copy.bytes());
    return copy;
  }

  const std::shared_ptr<Workers> workers_;
  const std::shared_ptr<Variable> local_;
};

}  // namespace

std::shared_ptr<Variable> make_worker_variable(const VariableOptions& options,
                                               const std::vector<Device>& devices,
                                               std::shared_ptr<Workers> workers,
                                               const std::shared_ptr<CommonWrites>& writes) {
  // Every worker makes a value, so that whatever else its making does is done by all; the chief's
  // counts.
  Tensor value = together(*workers, [&] { return make_initial_value(options); });
  const std::string topic = str("the creation of variable \"", options.name, "\" ", options.spec);
  if (writes != nullptr && is_written_together(options.synchronization))
    if (auto variable = make_common_variable(options, devices, *workers, topic, value, writes))
      return variable;
  workers->broadcast(topic, value.raw(), value.bytes());
  return std::make_shared<WorkerVariable>(with_value(options, value), devices, std::move(workers));
}

}  // namespace cohort
