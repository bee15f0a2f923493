#pragma once

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/nn/constraints.h"
#include "core/nn/initializers.h"
#include "core/nn/regularizers.h"
#include "core/runtime/variable.h"

namespace cohort::nn {

class Layer;
class Symbol;

// How a layer is being used.
struct CallContext {
  // Dropout drops, and batch normalisation uses and records the batch's statistics.
  bool training = false;
};

// How a layer is being used at one place of a network that is drawn, whatever the network is used
// for.
struct SymbolContext {
  std::optional<bool> training;  // without it, as the network
};

// What it takes to make a weight, apart from its name and shape.
struct WeightOptions {
  initializers::Initializer initializer = initializers::glorot_uniform();
  bool trainable = true;
  Synchronization synchronization = Synchronization::kAuto;
  Aggregation aggregation = Aggregation::kNone;
  regularizers::Regularizer regularizer = {};
  constraints::Constraint constraint = {};  // what optimizers keep it to
};

// A variable of a layer. It is declared when the layer is built and created, under the strategy
// that is current then, when the layer is first called in earnest.
class Weight {
 public:
  Weight(std::string name, TensorSpec spec, WeightOptions options);

  // While the layer is called: the value, a new value for it, and a change of it. Replicas' values
  // and changes are merged as Variable says: under Aggregation::kSum, to add what each has counted
  // is not to assign read() plus that, which would add up the value as well.
  Value read() const;
  void assign(const Value& value) const;
  void assign_add(const Value& delta) const;
  void assign_sub(const Value& delta) const;

  const std::string& name() const { return name_; }  // within its layer: "kernel"
  const TensorSpec& spec() const { return spec_; }
  const WeightOptions& options() const { return options_; }
  const std::shared_ptr<Variable>& variable() const { return variable_; }  // null until created
  // What its variable says, and before there is one the options.
  bool trainable() const { return variable_ ? variable_->trainable() : options_.trainable; }
  // Makes the variable, unless it is there.
  void create();

 private:
  std::string name_;
  TensorSpec spec_;
  WeightOptions options_;
  std::shared_ptr<Variable> variable_;
};

// What a layer is: derive from it to write one of your own, and hand
// `std::make_shared<YourLayer>()` over as a Layer. Calling a layer is part of tracing and not
// thread-safe.
class LayerBase {
 public:
  // `type` is the class as users know it ("Dense"); an empty `name` takes a default made from it
  // ("dense"), numbered among its siblings ("dense_1") where the layer is part of another, past
  // what weights are named that they have made before, and within the process where it is used by
  // itself.
  explicit LayerBase(std::string type, std::string name = "")
      : type_(std::move(type)), name_(std::move(name)) {}
  virtual ~LayerBase() = default;
  LayerBase(const LayerBase&) = delete;
  LayerBase& operator=(const LayerBase&) = delete;

  // Layers that this one is made of, each once and none empty (kInvalidArgument), in the order in
  // which summaries list them. Others that it calls, and that no layer around it lists, are neither
  // trained nor saved with the network; a warning says so.
  virtual std::vector<Layer> sublayers() const;

  const std::string& type() const { return type_; }
  bool trainable() const { return trainable_; }
  // One for each value that the layer gives; of several ones they differ and are not empty.
  virtual std::vector<std::string> output_names() const { return {name_}; }

 protected:
  // Declares the weights by `add_weight`. Called once, before the first call, with that call's
  // inputs. Sublayers that it makes are frozen where this layer is.
  virtual void build(const std::vector<TensorSpec>& /*inputs*/) {}
  // Adds the layer's nodes; to be overridden, or call_all(). It is called as well, for the shapes
  // that come of it, when a network is drawn or built: outside training, unless SymbolContext says
  // otherwise, and in a graph that is never run, where get_replica_context() is null in a scope, as
  // it is for code of no replica, and not null outside any. So what asks replicas does so in
  // training or where there is a context. Errors of both get the layer's path, its type and the
  // specs of its inputs in front, unless they come from a layer inside: layer "dense" (Dense) of
  // float32[2,6].
  virtual Value call(const std::vector<Value>& inputs, const CallContext& context);
  // The same of a layer of several outputs, which overrides this and output_names().
  virtual std::vector<Value> call_all(const std::vector<Value>& inputs, const CallContext& context);
  // Whether the layer, used by itself and not given a name, has none: the weights of a whole
  // network are then "dense/kernel", not "sequential/dense/kernel".
  virtual bool is_nameless_alone() const { return false; }

  // The reference stays valid as long as the layer.
  Weight& add_weight(std::string name, Shape shape, WeightOptions options = {},
                     DType dtype = DType::kFloat32);

  // In call(): adds a floating scalar (others are kInvalidArgument) to the loss of training and of
  // evaluation (AddedLosses). It is a mean over the rows that the layer sees, or does not depend on
  // them: each replica's counts by its share of the rows of all, which is division by the number of
  // replicas where shares are equal, and that of a replica without rows is passed over.
  static void add_loss(const Value& loss);

 private:
  friend class Layer;
  std::vector<Value> apply(const std::vector<Value>& inputs, const CallContext& context);
  void check_outputs(size_t count) const;
  // What sublayers() lists; kInvalidArgument for an empty layer.
  std::vector<Layer> listed() const;
  void name_sublayers();
  void build_once(const std::vector<TensorSpec>& inputs);
  void refuse_equal_names() const;
  bool is_trained() const;
  void collect(std::set<const LayerBase*>& network) const;
  void warn_of_unlisted() const;

  std::string type_;
  std::string name_;
  bool trainable_ = true;
  bool built_ = false;
  bool warned_ = false;
  TensorSpec output_;  // the first one
  std::vector<std::unique_ptr<Weight>> weights_;
};

// One line of a summary.
struct LayerSummary {
  std::string name;
  std::string type;
  Shape output_shape;  // the first output's, of the last call, without the batch
  int64_t parameters = 0;
  int64_t trainable_parameters = 0;
};

// A piece of a network: weights, and a function of values. A cheap handle; copies are the same
// layer, and a layer called twice uses the same weights twice.
class Layer {
 public:
  // Empty, as that of a null pointer is: it converts to false, and all else is kInvalidArgument.
  Layer() = default;
  template <typename L>
  Layer(std::shared_ptr<L> base) : base_(std::move(base)) {}  // NOLINT: a layer class is a layer

  // Adds the layer to the function that is being traced; the first call creates its weights.
  // kInvalidArgument where two layers of one layer, or their weights, have the same name, and, here
  // and in output_spec(), for a layer of several outputs.
  Value operator()(const Value& x, const CallContext& context = {}) const;
  Value operator()(const std::vector<Value>& inputs, const CallContext& context = {}) const;
  // Connects the layer in a network that is being drawn from nn::Input: base(x, {.training =
  // false}) keeps the batch normalisation of a network inside at its moving statistics.
  Symbol operator()(const Symbol& x, const SymbolContext& context = {}) const;
  Symbol operator()(const std::vector<Symbol>& inputs, const SymbolContext& context = {}) const;
  // The same for any number of outputs: all of them, in the order of output_names().
  std::vector<Value> outputs(const std::vector<Value>& inputs,
                             const CallContext& context = {}) const;
  std::vector<Symbol> outputs(const std::vector<Symbol>& inputs,
                              const SymbolContext& context = {}) const;
  // As LayerBase's; those of a network are found when it is built.
  std::vector<std::string> output_names() const { return base().output_names(); }

  // Creates all weights, for inputs of these specs (batch included, its extent does not matter),
  // unless a call has already done so.
  void build(const std::vector<TensorSpec>& inputs) const;
  // The spec of the result for inputs of these specs. Creates nothing.
  TensorSpec output_spec(const std::vector<TensorSpec>& inputs) const;
  std::vector<TensorSpec> output_specs(const std::vector<TensorSpec>& inputs) const;

  // All variables created so far, of this layer first and then of its sublayers, each once.
  std::vector<std::shared_ptr<Variable>> variables() const;
  // Those an optimizer may change: Variable::trainable, and in a layer that is not frozen.
  std::vector<std::shared_ptr<Variable>> trainable_variables() const;
  // Freezes or thaws this layer and all below it; a variable that is frozen by itself stays so.
  // Functions traced before keep what they were traced with. A frozen batch normalisation uses its
  // moving statistics even in training, as in Keras.
  void set_trainable(bool trainable) const;
  bool trainable() const { return base().trainable(); }
  // While tracing: the sum of all penalties of the regularizers of trainable weights, or none.
  // Where every replica adds it to its loss, divide it by the number of replicas in sync.
  Value regularization_loss() const;

  // "" until a name was given or found.
  const std::string& name() const { return base().name_; }
  const std::string& type() const { return base().type_; }
  std::vector<Layer> sublayers() const { return base().listed(); }
  bool built() const { return base().built_; }
  LayerSummary summary() const;

  explicit operator bool() const { return base_ != nullptr; }
  bool operator==(const Layer&) const = default;

 private:
  friend class LayerBase;
  LayerBase& base() const;
  void require_one_output() const;
  void each_weight(const std::function<void(const LayerBase&, const Weight&)>& visit) const;
  // Calls the layer on inputs of these specs in a graph that is thrown away.
  std::vector<TensorSpec> rehearse(const std::vector<TensorSpec>& inputs) const;

  std::shared_ptr<LayerBase> base_;
};

}  // namespace cohort::nn
