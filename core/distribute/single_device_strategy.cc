// The strategy over one device: what the default one is, and OneDeviceStrategy.
#include <atomic>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/distribute/own_devices.h"
#include "core/distribute/strategy.h"

namespace cohort {
namespace {

class SingleDeviceStrategy final : public Strategy {
 public:
  SingleDeviceStrategy(std::string name, Device device)
      : name_(std::move(name)), devices_{device} {}

  std::string name() const override { return name_; }
  int num_replicas_in_sync() const override { return 1; }
  const std::vector<Device>& devices() const override { return devices_; }
  std::shared_ptr<Variable> create_variable(const VariableOptions& options) override {
    return make_local_variable(options, devices_[0]);
  }
  std::vector<Gradient> reduce_gradients(const std::vector<Gradient>& gradients,
                                         const Value&) override {
    return gradients;
  }
  void end_training() override { ++trainings_; }
  int64_t trainings() const { return trainings_; }

 protected:
  PerReplica<std::vector<Tensor>> run_replicas(const Function& function,
                                               const PerReplica<std::vector<Tensor>>& inputs,
                                               const ReplicaGroup& group,
                                               const RunOptions& options) override {
    const PlanOptions replica{.device = devices_[0], .precision = options.precision};
    const StepInfo step{.seed = options.seed, .step = options.step};
    return {function.run(inputs[0], replica, step, group)};
  }

 private:
  std::string name_;
  std::vector<Device> devices_;
  std::atomic<int64_t> trainings_ = 0;
};

SingleDeviceStrategy& the_default() {
  static SingleDeviceStrategy strategy("default strategy", Device{});
  return strategy;
}

}  // namespace

Strategy& default_strategy() { return the_default(); }
int64_t trainings_without_strategy() { return the_default().trainings(); }

std::unique_ptr<Strategy> make_single_device_strategy(std::string name, Device device) {
  device_threads(device);  // throws for a device that does not exist
  note_own_devices(name);
  return std::make_unique<SingleDeviceStrategy>(std::move(name), device);
}

}  // namespace cohort
