#include "strategies/coordinator/per_worker_variable.h"

#include "core/base/error.h"
#include "strategies/coordinator/name_on_workers.h"

namespace cohort::coordinator {
namespace {

class PerWorkerVariable final : public Variable {
 public:
  PerWorkerVariable(const VariableOptions& options, ResourceTable& resources)
      : Variable(options),
        name_on_workers_(coordinator::name_on_workers(options.name)),
        handle_(resources.add(
            {.create = {.resource = 0,
                        .what = CreateVariable{name_on_workers_, make_initial_value(options),
                                               options.synchronization, options.aggregation}},
             .definition = {},
             .resources = {}})) {}

  uint64_t resource() const { return handle_->id(); }
  const std::string& name_on_workers() const { return name_on_workers_; }

  Tensor storage(int) override { refuse(); }
  int num_replicas() const override { return 1; }
  bool is_same_on_replicas() const override { return false; }
  std::vector<Device> devices() const override { return {Device{}}; }

 protected:
  Tensor load_value() const override { refuse(); }
  void store_value(const Tensor&) override { refuse(); }

 private:
  [[noreturn]] void refuse() const {
    fail(Code::kFailedPrecondition, "variable \"", name(),
         "\" is on the workers: schedule a function that uses it, or fetch_per_worker it");
  }

  const std::string name_on_workers_;
  const std::shared_ptr<const ResourceHandle> handle_;
};

}  // namespace

std::shared_ptr<Variable> make_per_worker_variable(const VariableOptions& options,
                                                   ResourceTable& resources) {
  return std::make_shared<PerWorkerVariable>(options, resources);
}

uint64_t per_worker_resource(const Variable& variable) {
  const auto* here = dynamic_cast<const PerWorkerVariable*>(&variable);
  if (here == nullptr)
    invalid("variable \"", variable.name(), "\" is not one of create_per_worker_variable");
  return here->resource();
}

const std::string* per_worker_name(const Resource& resource) {
  const auto* here = dynamic_cast<const PerWorkerVariable*>(&resource);
  return here == nullptr ? nullptr : &here->name_on_workers();
}

}  // namespace cohort::coordinator
