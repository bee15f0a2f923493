#include "strategies/coordinator/per_worker_variable.h"

#include <utility>

#include "core/base/error.h"
#include "strategies/cluster/coordination/random_ids.h"

namespace cohort::coordinator {
namespace {

class PerWorkerVariable final : public Variable {
 public:
  PerWorkerVariable(const VariableOptions& options, ResourceTable& resources)
      : Variable(options),
        handle_(resources.add(
            {.create = {.resource = 0,
                        .what = CreateVariable{options.name, make_initial_value(options),
                                               options.synchronization, options.aggregation}},
             .definition = {},
             .resources = {}})) {}

  uint64_t resource() const { return handle_->id(); }

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

  const std::shared_ptr<const ResourceHandle> handle_;
};

}  // namespace

std::shared_ptr<Variable> make_per_worker_variable(VariableOptions options,
                                                   ResourceTable& resources) {
  // Workers know it by its name, which others may have, too.
  options.name = str(options.name, "#", coordination::random_incarnation());
  return std::make_shared<PerWorkerVariable>(options, resources);
}

uint64_t per_worker_resource(const Variable& variable) {
  const auto* here = dynamic_cast<const PerWorkerVariable*>(&variable);
  if (here == nullptr)
    invalid("variable \"", variable.name(), "\" is not one of create_per_worker_variable");
  return here->resource();
}

}  // namespace cohort::coordinator
