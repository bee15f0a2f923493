#include "strategies/variables/central_variable.h"

#include "strategies/variables/mirrored_variable.h"

namespace cohort {
namespace {

class CentralVariable final : public Variable {
 public:
  CentralVariable(const VariableOptions& options, Device device, size_t replicas)
      : Variable(options),
        device_(device),
        replicas_(static_cast<int>(replicas)),
        storage_(make_initial_value(options)) {}

  Tensor storage(int replica) override {
    require_replica(replica);
    return storage_;
  }
  int num_replicas() const override { return replicas_; }
  bool is_written_by(int replica) const override { return replica == 0; }
  std::vector<Device> devices() const override { return {device_}; }

 protected:
  Tensor load_value() const override { return storage_.clone(); }
  void store_value(const Tensor& value) override { assign_storage(storage_, value); }

 private:
  Device device_;
  int replicas_;
  Tensor storage_;
};

void require_shared_memory(const VariableOptions& options, Device parameter_device,
                           const std::vector<Device>& replicas) {
  for (const Device replica : replicas)
    if (replica.type != parameter_device.type || replica.type != DeviceType::kCpu)
      fail(Code::kUnimplemented, "variable \"", options.name, "\": a replica on ", replica,
           " cannot read the memory of ", parameter_device, " in place");
}

}  // namespace

std::shared_ptr<Variable> make_central_variable(const VariableOptions& options,
                                                Device parameter_device,
                                                const std::vector<Device>& replicas) {
  if (options.synchronization == Synchronization::kOnRead ||
      options.synchronization == Synchronization::kNone)
    return make_mirrored_variable(options, replicas);
  require_shared_memory(options, parameter_device, replicas);
  return std::make_shared<CentralVariable>(options, parameter_device, replicas.size());
}

}  // namespace cohort
