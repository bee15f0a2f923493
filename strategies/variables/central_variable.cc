#include "strategies/variables/central_variable.h"

#include <algorithm>

#include "core/runtime/aggregation.h"
#include "core/runtime/variable_memory.h"
#include "strategies/variables/mirrored_variable.h"

namespace cohort {
namespace {

class CentralVariable final : public Variable {
 public:
  CentralVariable(const VariableOptions& options, Device device,
                  const std::vector<Device>& replicas)
      : Variable(options),
        replicas_(static_cast<int>(replicas.size())),
        is_shared_(share_memory({device}) && share_memory(replicas)),
        copy_(make_local_variable(options, device)) {}

  Tensor storage(int replica) override {
    require_replica(replica);
    return copy_->storage(0);
  }
  int num_replicas() const override { return replicas_; }
  bool is_written_by(int replica) const override { return replica == 0; }
  bool is_shared() const override { return is_shared_; }
  std::vector<Device> devices() const override { return copy_->devices(); }

 protected:
  Tensor load_value() const override { return copy_->value(); }
  void store_value(const Tensor& value) override { copy_->assign(value); }

 private:
  const int replicas_;
  const bool is_shared_;
  const std::shared_ptr<Variable> copy_;
};

}  // namespace

bool share_memory(const std::vector<Device>& devices) {
  return std::all_of(devices.begin(), devices.end(), is_host);
}

std::shared_ptr<Variable> make_central_variable(const VariableOptions& options,
                                                Device parameter_device,
                                                const std::vector<Device>& replicas) {
  if (!is_written_together(options.synchronization))
    return make_mirrored_variable(options, replicas);
  return std::make_shared<CentralVariable>(options, parameter_device, replicas);
}

}  // namespace cohort
