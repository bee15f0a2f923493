// Trains with components of its own: two layers, a loss, a metric, an optimizer and a callback, on
// two replicas. docs/custom-components.md says what each of them has to keep to.
#include <cmath>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cohort.h"

using namespace cohort;

namespace {

// x + sigmoid(gate) * inner(x), with a gate for each feature, which at first lets a quarter pass.
class GatedResidual final : public nn::LayerBase {
 public:
  explicit GatedResidual(std::string name = "") : LayerBase("GatedResidual", std::move(name)) {}

  // Asked before build() too, when there is none yet.
  std::vector<nn::Layer> sublayers() const override {
    return inner_ ? std::vector<nn::Layer>{inner_} : std::vector<nn::Layer>{};
  }

 protected:
  void build(const std::vector<TensorSpec>& inputs) override {
    if (inputs.size() != 1) invalid("takes 1 input, got ", inputs.size());
    const int64_t features = inputs[0].shape.dim(-1);
    inner_ = nn::Dense(features, {.activation = nn::relu, .name = "inner"});
    gate_ = &add_weight("gate", {features}, {.initializer = initializers::constant(-1)});
  }

  Value call(const std::vector<Value>& inputs, const nn::CallContext& context) override {
    const Value& x = inputs.at(0);
    return x + ops::sigmoid(gate_->read()) * inner_(x, context);
  }

 private:
  nn::Layer inner_;
  nn::Weight* gate_ = nullptr;
};

// [.., 2 n], means and logarithms of variances, to [.., n]: in training normal samples, else the
// means.
class Sampling final : public nn::LayerBase {
 public:
  explicit Sampling(std::string name = "") : LayerBase("Sampling", std::move(name)) {}

 protected:
  Value call(const std::vector<Value>& inputs, const nn::CallContext& context) override {
    const Value& moments = inputs.at(0);
    const int64_t size = moments.shape().dim(-1);
    if (size % 2 != 0) invalid("takes a mean and a variance for each feature");
    const auto parts = ops::split(moments, {size / 2, size / 2}, -1);
    const Value &mean = parts[0], &log_variance = parts[1];
    if (!context.training) return mean;
    return mean +
           ops::exp(log_variance * 0.5) * ops::random_normal(mean.shape(), 0, 1, mean.dtype());
  }
};

// The focal loss of logits (Lin et al. 2017): the cross-entropy times (1 - p)^gamma, where p is the
// probability that the label is given. So what is learned already counts less.
losses::Loss BinaryFocal(double gamma) {
  return losses::Loss("binary_focal", [gamma](const Value& y_true, const Value& y_pred) {
    const Value side = losses::match_prediction(y_true, y_pred) * 2.0 - 1.0;  // -1 or 1
    const Value logit = side * y_pred;  // of the label: p is its sigmoid
    return ops::softplus(-logit) * ops::exp(ops::softplus(logit) * -gamma);
  });
}

// The harmonic mean of precision and recall, of logits: from three sums, since the mean of the F1
// of batches is another number.
metrics::Metric F1(std::string name = "f1") {
  const auto update = [](const Value& y_true, const Value& y_pred, const Value& weights) {
    const Value logits = losses::widened(y_pred);
    const Value actual = losses::match_prediction(y_true, logits);
    const Value found =
        ops::cast(ops::greater(logits, ops::constant(0, logits.dtype())), logits.dtype());
    const auto sum = [&](const Value& x) {
      return ops::reduce_sum(weights.defined() ? losses::weighted(x, weights) : x);
    };
    return std::vector<Value>{sum(actual * found), sum(actual), sum(found)};
  };
  const auto result = [](const metrics::State& sums) {
    const double either = sums[1] + sums[2];
    return either > 0 ? 2 * sums[0] / either : 0.0;
  };
  return metrics::Metric(std::move(name), update, result, metrics::Direction::kUp);
}

// Lion (Chen et al. 2023): steps of one size, along the sign of a mean of gradients.
class LionRule final : public optim::UpdateRule {
 public:
  LionRule(double beta_1, double beta_2) : beta_1_(beta_1), beta_2_(beta_2) {}

  std::vector<Slot> slots() const override { return {{.name = "momentum"}}; }

  std::vector<Value> scalars(const Value& learning_rate, const Value& /*step*/) const override {
    return {learning_rate};
  }

  Value update(const Value& variable, const Value& gradient, std::vector<Value>& slots,
               const std::vector<Value>& scalars) const override {
    Value& momentum = slots[0];
    const Value direction = momentum * beta_1_ + gradient * (1 - beta_1_);
    momentum = momentum * beta_2_ + gradient * (1 - beta_2_);
    return variable - ops::sign(direction) * scalars[0];
  }

 private:
  double beta_1_, beta_2_;
};

optim::Optimizer Lion(optim::LearningRate learning_rate, double weight_decay) {
  return optim::Optimizer(std::make_shared<LionRule>(0.9, 0.99),
                          {.learning_rate = std::move(learning_rate),
                           .weight_decay = {.factor = weight_decay, .exclude = {"bias", "gate"}}});
}

// Keeps the exponential moving averages of float32 weights, validates with them, and leaves them to
// the model in the end.
class AverageWeights final : public Callback {
 public:
  explicit AverageWeights(double decay) : decay_(decay) {}

  void on_train_begin(Training& training) override {
    variables_ = training.model().trainable_variables();
    averages_ = values();
  }

  void on_batch_end(Training&) override {
    const auto rate = static_cast<float>(1 - decay_);
    for (size_t i = 0; i < variables_.size(); ++i) {
      const Tensor value = variables_[i]->value();
      float* average = averages_[i].data<float>();
      for (const float now : value.values<float>()) {
        *average += rate * (now - *average);
        ++average;
      }
    }
  }

  void on_validation_begin(Training&) override {
    trained_ = values();
    assign(averages_);
  }
  void on_validation_end(Training&) override { assign(trained_); }

  void on_train_end(Training& training) override {
    if (!training.interrupted()) assign(averages_);
  }

  // For backups, which training goes on from.
  std::string state_name() const override { return "AverageWeights"; }
  CallbackState state() const override {
    CallbackState state;
    for (size_t i = 0; i < variables_.size(); ++i)
      state[variables_[i]->name()] = averages_[i].clone();
    return state;
  }
  void restore(const CallbackState& state) override {
    for (size_t i = 0; i < variables_.size(); ++i) {
      const auto saved = state.find(variables_[i]->name());
      if (saved == state.end() || saved->second.spec() != averages_[i].spec())
        invalid("there is no average of ", variables_[i]->name(), " ", averages_[i].spec());
      averages_[i] = saved->second.clone();
    }
  }

 private:
  std::vector<Tensor> values() const {
    std::vector<Tensor> values;
    for (const auto& variable : variables_) values.push_back(variable->value());
    return values;
  }
  void assign(const std::vector<Tensor>& values) const {
    for (size_t i = 0; i < variables_.size(); ++i) variables_[i]->assign(values[i]);
  }

  double decay_;
  Variables variables_;
  std::vector<Tensor> averages_, trained_;
};

// Points of a square. Those within a circle, a quarter of them, have the label 1.
data::Dataset points(int64_t rows, uint64_t stream) {
  Tensor point(DType::kFloat32, {rows, 2}), label(DType::kFloat32, {rows});
  RandomStream random(/*seed=*/1, stream);
  for (int64_t i = 0; i < rows; ++i) {
    const double x = 2 * random.uniform() - 1, y = 2 * random.uniform() - 1;
    point.data<float>()[2 * i] = static_cast<float>(x);
    point.data<float>()[2 * i + 1] = static_cast<float>(y);
    label.data<float>()[i] = std::hypot(x, y) < 0.56 ? 1.0F : 0.0F;
  }
  return data::from_tensor_slices({{"point", point}, {"label", label}});
}

Model make_model() {
  Model model =
      nn::Sequential({nn::Dense(32, {.activation = nn::relu}), std::make_shared<GatedResidual>(),
                      nn::Dense(16), std::make_shared<Sampling>(), nn::Dense(1)});
  model.compile(
      {.optimizer = Lion(0.004, 0.01), .loss = BinaryFocal(/*gamma=*/2), .metrics = {F1()}});
  return model;
}

}  // namespace

int main(int argc, char** argv) {
  return run_main([&] {
    Flags flags(argc, argv,
                "Trains with layers, a loss, a metric, an optimizer and a callback of its own.");
    const int64_t epochs = flags.integer("epochs", 10, "passes over the training data", {.min = 1});
    const auto save =
        flags.text("save", "", "file for the weights; empty: one that is removed in the end");
    flags.finish();
    const TemporaryFolder folder("custom_components");
    const std::string path = save.empty() ? folder.path() + "/weights.safetensors" : save;

    set_logical_cpus(2);
    MirroredStrategy strategy({.devices = {"cpu:0", "cpu:1"}});
    const auto scope = strategy.scope();
    const auto validation = points(1'000, /*stream=*/1).batch(250);
    Model model = make_model();
    model.fit(points(4'000, /*stream=*/0).shuffle(4'000).batch(64),
              {.epochs = epochs,
               .validation_data = validation,
               .callbacks = {std::make_shared<AverageWeights>(/*decay=*/0.98)}});
    model.save_weights(path);

    Model loaded = make_model();
    loaded.load_weights(path);
    std::printf("val_f1=%.3f\n", loaded.evaluate(validation).at("f1"));
  });
}
