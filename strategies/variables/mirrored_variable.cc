#include "strategies/variables/mirrored_variable.h"

#include <vector>

namespace cohort {
namespace {

class MirroredVariable : public Variable {
 public:
  MirroredVariable(const VariableOptions& options, int replicas)
      : Variable(options.name, options.spec, options.trainable),
        copies_{make_initial_value(options)} {
    while (copies_.size() < static_cast<size_t>(replicas)) copies_.push_back(copies_[0].clone());
  }

  Tensor value() const override { return copies_[0].clone(); }
  void set_value(const Tensor& value) override {
    for (Tensor& copy : copies_) assign_storage(copy, value);
  }
  Tensor storage(int replica) override { return copies_.at(static_cast<size_t>(replica)); }

 protected:
  std::vector<Tensor> copies_;
};

class SyncOnReadVariable final : public MirroredVariable {
 public:
  SyncOnReadVariable(const VariableOptions& options, int replicas)
      : MirroredVariable(options, replicas), aggregation_(options.aggregation) {
    if (!is_floating(options.spec.dtype) && aggregation_ == Aggregation::kMean)
      invalid("variable \"", options.name, "\": the mean of ", options.spec.dtype,
              " copies is not a ", options.spec.dtype);
  }

  Tensor value() const override {
    if (aggregation_ == Aggregation::kOnlyFirstReplica) return MirroredVariable::value();
    if (aggregation_ == Aggregation::kNone)
      invalid("variable \"", name(),
              "\" is synchronised on read without an aggregation: it has a value only ",
              "inside a replica");
    // Summed in float64, so that the result does not depend on the number of copies beyond rounding
    // once.
    std::vector<double> sums(static_cast<size_t>(spec().shape.num_elements()), 0.0);
    for (const Tensor& copy : copies_) {
      const Tensor values = copy.cast(DType::kFloat64);
      for (size_t i = 0; i < sums.size(); ++i) sums[i] += values.data<double>()[i];
    }
    if (aggregation_ == Aggregation::kMean)
      for (double& sum : sums) sum /= static_cast<double>(copies_.size());
    return Tensor::from(sums, spec().shape).cast(spec().dtype);
  }

  void set_value(const Tensor& value) override {
    if (aggregation_ != Aggregation::kSum) return MirroredVariable::set_value(value);
    Tensor part = value.cast(DType::kFloat64);
    for (int64_t i = 0; i < part.num_elements(); ++i)
      part.data<double>()[i] /= static_cast<double>(copies_.size());
    MirroredVariable::set_value(part.cast(value.dtype()));
  }

 private:
  Aggregation aggregation_;
};

}  // namespace

std::shared_ptr<Variable> make_mirrored_variable(const VariableOptions& options, int replicas) {
  if (options.synchronization == Synchronization::kOnRead)
    return std::make_shared<SyncOnReadVariable>(options, replicas);
  return std::make_shared<MirroredVariable>(options, replicas);
}

}  // namespace cohort
