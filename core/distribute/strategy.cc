#include "core/distribute/strategy.h"

namespace cohort {
namespace {

thread_local Strategy* t_strategy = nullptr;

class SingleDeviceStrategy final : public Strategy {
 public:
  SingleDeviceStrategy(std::string name, Device device)
      : name_(std::move(name)), devices_{device} {}

  std::string name() const override { return name_; }
  int num_replicas_in_sync() const override { return 1; }
  const std::vector<Device>& devices() const override { return devices_; }
  std::shared_ptr<Variable> create_variable(const VariableOptions& options) override {
    return make_local_variable(options);
  }
  std::vector<Gradient> reduce_gradients(const std::vector<Gradient>& gradients) override {
    return gradients;
  }

  PerReplica<std::vector<Tensor>> run(const Function& function,
                                      const PerReplica<std::vector<Tensor>>& inputs,
                                      const RunOptions& options) override {
    if (inputs.size() != 1) invalid(name_, " has 1 replica, got inputs for ", inputs.size());
    const Scope inside(*this);
    const PlanOptions replica{.device = devices_[0], .precision = options.precision};
    return {function.run(inputs[0], replica, {.seed = options.seed, .step = options.step})};
  }

 private:
  std::string name_;
  std::vector<Device> devices_;
};

}  // namespace

std::vector<int64_t> split_rows(int64_t rows, int replicas) {
  if (rows < 0 || replicas < 1)
    invalid("cannot split ", rows, " rows over ", replicas, " replicas");
  std::vector<int64_t> sizes(static_cast<size_t>(replicas), rows / replicas);
  for (int64_t i = 0; i < rows % replicas; ++i) ++sizes[static_cast<size_t>(i)];
  return sizes;
}

PerReplica<std::vector<Tensor>> Strategy::split_batch(const std::vector<Tensor>& batch) const {
  if (batch.empty()) invalid("an empty batch cannot be split");
  const int replicas = static_cast<int>(devices().size());
  PerReplica<std::vector<Tensor>> parts(static_cast<size_t>(replicas));
  for (const Tensor& tensor : batch) {
    const auto rows = tensor.shape().rank() > 0 ? tensor.shape()[0] : -1;
    if (rows < 0 || rows != batch[0].shape()[0])
      invalid("the tensors of a batch need equal first extents, got ", batch[0].spec(), " and ",
              tensor.spec());
    int64_t begin = 0;
    const auto sizes = split_rows(rows, replicas);
    for (size_t r = 0; r < parts.size(); begin += sizes[r++])
      parts[r].push_back(tensor.slice_rows(begin, begin + sizes[r]));
  }
  return parts;
}

Strategy::Scope Strategy::scope() { return Scope(*this); }

Strategy::Scope::Scope(Strategy& strategy) : previous_(t_strategy) {
  if (previous_ != nullptr && previous_ != &strategy)
    fail(Code::kFailedPrecondition, "the scope of ", strategy.name(),
         " cannot be entered inside the scope of ", previous_->name(), "; leave that one first");
  t_strategy = &strategy;
}

Strategy::Scope::~Scope() { t_strategy = previous_; }

Strategy& default_strategy() {
  static SingleDeviceStrategy strategy("default strategy", Device{});
  return strategy;
}

Strategy& current_strategy() { return t_strategy != nullptr ? *t_strategy : default_strategy(); }

std::shared_ptr<Variable> create_variable(VariableOptions options) {
  const std::string& scope = NameScope::current();
  if (!scope.empty()) options.name = str(scope, "/", options.name);
  return current_strategy().create_variable(options);
}

std::unique_ptr<Strategy> make_single_device_strategy(std::string name, Device device) {
  device_threads(device);  // throws for a device that does not exist
  return std::make_unique<SingleDeviceStrategy>(std::move(name), device);
}

}  // namespace cohort
