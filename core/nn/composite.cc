#include "core/nn/composite.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "core/nn/layer_inputs.h"
#include "core/ops/math_ops.h"

namespace cohort::nn {

// What makes a symbol: a layer on other symbols, or none for an input.
struct Symbol::Node {
  std::string name;               // of an input
  std::vector<TensorSpec> specs;  // of its outputs, with a batch extent that stands for any
  Layer layer;
  std::vector<Symbol> inputs;
  SymbolContext context;
};

namespace {

// The batch extent with which shapes are checked while a network is drawn: not 1, which would
// broadcast.
constexpr int64_t kAnyBatch = 2;

std::vector<Layer> distinct(const std::vector<Layer>& layers) {
  std::vector<Layer> out;
  for (const Layer& layer : layers)
    if (std::find(out.begin(), out.end(), layer) == out.end()) out.push_back(layer);
  return out;
}

Value chain(const std::vector<Layer>& layers, Value x, const CallContext& context) {
  for (const Layer& layer : layers) x = layer(x, context);
  return x;
}

void check_layers(const std::string& type, const std::vector<Layer>& layers) {
  for (const Layer& layer : layers)
    if (!layer) invalid(type, " was given an empty layer");
}

class SequentialLayer final : public LayerBase {
 public:
  SequentialLayer(const std::vector<Layer>& layers, std::string name)
      : LayerBase("Sequential", std::move(name)), layers_(layers) {}
  std::vector<Layer> sublayers() const override { return distinct(layers_); }

 protected:
  Value call(const std::vector<Value>& inputs, const CallContext& context) override {
    // The first layer may take several inputs.
    return chain({layers_.begin() + 1, layers_.end()}, layers_[0](inputs, context), context);
  }
  bool is_nameless_alone() const override { return true; }

 private:
  std::vector<Layer> layers_;
};

class ResidualLayer final : public LayerBase {
 public:
  ResidualLayer(const std::vector<Layer>& inner, const std::vector<Layer>& shortcut,
                const ResidualOptions& options)
      : LayerBase("Residual", options.name),
        inner_(inner),
        shortcut_(shortcut),
        activation_(options.activation) {}
  std::vector<Layer> sublayers() const override {
    std::vector<Layer> all = inner_;
    all.insert(all.end(), shortcut_.begin(), shortcut_.end());
    return distinct(all);
  }

 protected:
  Value call(const std::vector<Value>& inputs, const CallContext& context) override {
    const Value& x = only_input(inputs);
    const Value inner = chain(inner_, x, context), shortcut = chain(shortcut_, x, context);
    if (inner.shape() != shortcut.shape())
      invalid("the inner layers give ", inner.shape(), ", the shortcut ", shortcut.shape());
    const Value sum = inner + shortcut;
    return activation_ ? activation_(sum) : sum;
  }

 private:
  std::vector<Layer> inner_, shortcut_;
  Activation activation_;
};

class FunctionalLayer final : public LayerBase {
 public:
  FunctionalLayer(const std::vector<Symbol>& inputs, const std::vector<Symbol>& outputs,
                  std::string name)
      : LayerBase("Functional", std::move(name)), inputs_(inputs), outputs_(outputs) {
    if (outputs_.empty()) invalid("a Functional network needs at least one output");
    refuse_repeated_inputs();
    std::set<Place> seen;
    for (const Symbol& output : outputs_) visit(output, seen);
    for (const Symbol& input : inputs_)
      if (seen.count(place_of(input)) == 0)
        invalid("the network does not use its input \"", input.node().name, "\"");
  }

  std::vector<Layer> sublayers() const override {
    std::vector<Layer> layers;
    for (const Symbol::Node* node : order_) layers.push_back(node->layer);
    return distinct(layers);
  }
  std::vector<std::string> output_names() const override {
    if (outputs_.size() == 1) return LayerBase::output_names();
    std::vector<std::string> names;
    for (const Symbol& output : outputs_) {
      const Symbol::Node& node = output.node();
      names.push_back(node.layer ? node.layer.output_names()[output.output()] : node.name);
    }
    return names;
  }

 protected:
  std::vector<Value> call_all(const std::vector<Value>& inputs,
                              const CallContext& context) override {
    if (inputs.size() != inputs_.size())
      invalid("the network takes ", inputs_.size(), " inputs, got ", inputs.size(),
              inputs.size() < inputs_.size()
                  ? "; tensors of a batch that are named \"label\" or \"weight\" are no inputs"
                  : "");
    std::map<Place, Value> values;
    for (size_t i = 0; i < inputs.size(); ++i) {
      check_input(i, inputs[i].spec());
      values[place_of(inputs_[i])] = inputs[i];
    }
    const auto values_of = [&](const std::vector<Symbol>& symbols) {
      std::vector<Value> found;
      for (const Symbol& symbol : symbols) found.push_back(values.at(place_of(symbol)));
      return found;
    };
    for (const Symbol::Node* node : order_) {
      const bool training = node->context.training.value_or(context.training);
      const auto results = node->layer.outputs(values_of(node->inputs), {.training = training});
      // Where one of them is an input of this network, that stays what it is.
      for (size_t i = 0; i < results.size(); ++i) values.emplace(Place(node, i), results[i]);
    }
    return values_of(outputs_);
  }
  bool is_nameless_alone() const override { return true; }

 private:
  // Of a symbol: its node, and which output of that it is.
  using Place = std::pair<const Symbol::Node*, size_t>;
  static Place place_of(const Symbol& symbol) { return {&symbol.node(), symbol.output()}; }

  void refuse_repeated_inputs() const {
    std::set<Place> listed;
    for (const Symbol& input : inputs_)
      if (!listed.insert(place_of(input)).second)
        invalid("input \"", input.node().name, "\" is listed twice");
  }

  void check_input(size_t i, const TensorSpec& given) const {
    const Symbol& input = inputs_[i];
    if (given.dtype == input.dtype() && given.shape.rank() > 0 &&
        given.shape.without_axis(0) == input.shape())
      return;
    const std::string& name = input.node().name;
    invalid("the network's input ", i, name.empty() ? "" : str(" \"", name, "\""),
            " is declared with rows of ", TensorSpec{input.dtype(), input.shape()},
            ", got a batch ", given);
  }

  // Appends to order_ what leads from the inputs to `symbol`, every node after those it uses.
  void visit(const Symbol& symbol, std::set<Place>& seen) {
    if (!seen.insert(place_of(symbol)).second || is_input(symbol)) return;
    const Symbol::Node& node = symbol.node();
    if (!node.layer)
      invalid("the network needs input \"", node.name, "\", which is not among its inputs");
    // By way of another of its outputs.
    if (std::find(order_.begin(), order_.end(), &node) != order_.end()) return;
    for (const Symbol& input : node.inputs) visit(input, seen);
    order_.push_back(&node);
  }
  bool is_input(const Symbol& symbol) const {
    return std::any_of(inputs_.begin(), inputs_.end(),
                       [&](const Symbol& s) { return place_of(s) == place_of(symbol); });
  }

  std::vector<Symbol> inputs_, outputs_;  // the outputs keep the nodes alive
  std::vector<const Symbol::Node*> order_;
};

}  // namespace

Shape Symbol::shape() const { return node_->specs[output_].shape.without_axis(0); }
DType Symbol::dtype() const { return node_->specs[output_].dtype; }

Symbol Input(const Shape& shape, const InputOptions& options) {
  const TensorSpec spec{options.dtype, shape.with_inserted(0, kAnyBatch)};
  return Symbol(
      std::make_shared<Symbol::Node>(Symbol::Node{.name = options.name, .specs = {spec}}));
}

Symbol Layer::operator()(const Symbol& x, const SymbolContext& context) const {
  return (*this)(std::vector<Symbol>{x}, context);
}

Symbol Layer::operator()(const std::vector<Symbol>& inputs, const SymbolContext& context) const {
  require_one_output();
  return outputs(inputs, context).front();
}

std::vector<Symbol> Layer::outputs(const std::vector<Symbol>& inputs,
                                   const SymbolContext& context) const {
  std::vector<TensorSpec> specs;
  for (const Symbol& input : inputs) specs.push_back(input.node().specs[input.output()]);
  const auto node = std::make_shared<Symbol::Node>(Symbol::Node{
      .specs = output_specs(specs), .layer = *this, .inputs = inputs, .context = context});
  std::vector<Symbol> outputs;
  for (size_t i = 0; i < node->specs.size(); ++i) outputs.emplace_back(node, i);
  return outputs;
}

Layer make_sequential(const std::vector<Layer>& layers, std::string name) {
  if (layers.empty()) invalid("a Sequential network needs at least one layer");
  check_layers("Sequential", layers);
  return std::make_shared<SequentialLayer>(layers, std::move(name));
}

Layer make_functional(const std::vector<Symbol>& inputs, const Symbol& output, std::string name) {
  return make_functional(inputs, std::vector{output}, std::move(name));
}

Layer make_functional(const std::vector<Symbol>& inputs, const std::vector<Symbol>& outputs,
                      std::string name) {
  return std::make_shared<FunctionalLayer>(inputs, outputs, std::move(name));
}

Layer Residual(const std::vector<Layer>& inner, const std::vector<Layer>& shortcut,
               const ResidualOptions& options) {
  if (inner.empty()) invalid("Residual needs at least one inner layer");
  check_layers("Residual", inner);
  check_layers("Residual", shortcut);
  return std::make_shared<ResidualLayer>(inner, shortcut, options);
}

}  // namespace cohort::nn
