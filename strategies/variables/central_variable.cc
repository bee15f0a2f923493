#include "strategies/variables/central_variable.h"

#include "strategies/variables/mirrored_variable.h"

namespace cohort {
namespace {

class CentralVariable final : public Variable {
 public:
  CentralVariable(const VariableOptions& options, Device device, size_t replicas)
      : Variable(options),
        replicas_(static_cast<int>(replicas)),
        copy_(make_local_variable(options, device)) {}

  Tensor storage(int replica) override {
    require_replica(replica);
    return copy_->storage(0);
  }
  int num_replicas() const override { return replicas_; }
  bool is_written_by(int replica) const override { return replica == 0; }
  std::vector<Device> devices() const override { return copy_->devices(); }

 protected:
  Tensor load_value() const override { return copy_->value(); }
  void store_value(const Tensor& value) override { copy_->assign(value); }

 private:
  int replicas_;
  const std::shared_ptr<Variable> copy_;
};

}  // namespace

std::shared_ptr<Variable> make_central_variable(const VariableOptions& options,
                                                Device parameter_device,
                                                const std::vector<Device>& replicas) {
  if (options.synchronization == Synchronization::kOnRead ||
      options.synchronization == Synchronization::kNone)
    return make_mirrored_variable(options, replicas);
  return std::make_shared<CentralVariable>(options, parameter_device, replicas.size());
}

}  // namespace cohort
