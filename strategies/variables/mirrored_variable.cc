#include "strategies/variables/mirrored_variable.h"

#include "core/runtime/aggregation.h"
#include "core/runtime/function.h"

namespace cohort {
namespace {

class MirroredVariable final : public Variable {
 public:
  MirroredVariable(const VariableOptions& options, std::vector<Device> devices)
      : Variable(options),
        devices_(std::move(devices)),
        merge_([this](const std::vector<Value>& copies) {
          return std::vector{merge_copies(*this, copies)};
        }) {
    VariableOptions of_copy = options;
    of_copy.initial_value = [initial = make_initial_value(options)] { return initial; };
    for (size_t r = 0; r < devices_.size(); ++r) {
      if (r > 0) of_copy.name = str(options.name, "/replica_", r);
      copies_.push_back(make_local_variable(of_copy, devices_[r]));
    }
  }

  Tensor storage(int replica) override {
    require_replica(replica);
    return copies_[static_cast<size_t>(replica)]->storage(0);
  }
  int num_replicas() const override { return static_cast<int>(copies_.size()); }
  std::vector<Device> devices() const override { return devices_; }
  std::vector<std::shared_ptr<Variable>> other_copies() const override {
    return {copies_.begin() + 1, copies_.end()};
  }

 protected:
  Tensor load_value() const override {
    if (!is_made_on_read(*this)) return copies_[0]->value();
    std::vector<Tensor> values;
    for (const auto& copy : copies_) values.push_back(copy->value());
    return merge_(values)[0];
  }
  void store_value(const Tensor& value) override {
    require_value(*this);
    if (is_made_on_read(*this)) return Variable::store_value(value);
    for (const auto& copy : copies_) copy->assign(value);
  }

 private:
  std::vector<Device> devices_;
  const Function merge_;  // is called by each run of plans that no strategy runs
  std::vector<std::shared_ptr<Variable>> copies_;
};

}  // namespace

std::shared_ptr<Variable> make_mirrored_variable(const VariableOptions& options,
                                                 const std::vector<Device>& devices) {
  return std::make_shared<MirroredVariable>(options, devices);
}

}  // namespace cohort
