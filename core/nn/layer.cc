#include "core/nn/layer.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "core/base/comma_separated.h"
#include "core/base/fnv1a.h"
#include "core/base/notice.h"
#include "core/base/random.h"
#include "core/distribute/strategy.h"
#include "core/nn/added_losses.h"
#include "core/ops/math_ops.h"
#include "core/ops/state_ops.h"

namespace cohort::nn {
namespace {

// While true, this thread only finds out shapes: weights are stand-ins and are not created.
thread_local bool t_rehearsing = false;

class Rehearsal {
 public:
  Rehearsal() : previous_(std::exchange(t_rehearsing, true)) {}
  ~Rehearsal() { t_rehearsing = previous_; }
  Rehearsal(const Rehearsal&) = delete;
  Rehearsal& operator=(const Rehearsal&) = delete;

 private:
  bool previous_;
};

// The layers whose `call` this thread is in, outermost first.
thread_local std::vector<const LayerBase*> t_calling;
// A call that one of them has made.
struct InnerCall {
  Layer layer;
  std::string path;
  const LayerBase* caller;  // may be gone
};
thread_local std::vector<InnerCall> t_inner_calls;

class Calling {
 public:
  explicit Calling(const LayerBase& layer) { t_calling.push_back(&layer); }
  ~Calling() {
    t_calling.pop_back();
    if (t_calling.empty()) t_inner_calls.clear();
  }
  Calling(const Calling&) = delete;
  Calling& operator=(const Calling&) = delete;
};

// "MaxPooling2D" to "max_pooling2d", as Keras does.
std::string snake_case(const std::string& type) {
  std::string out;
  for (size_t i = 0; i < type.size(); ++i) {
    const bool upper = std::isupper(static_cast<unsigned char>(type[i])) != 0;
    const bool before_lower =
        i + 1 < type.size() && std::islower(static_cast<unsigned char>(type[i + 1]));
    const bool after_lower = i > 0 && std::islower(static_cast<unsigned char>(type[i - 1]));
    if (i > 0 && upper && (before_lower || after_lower)) out += '_';
    out += static_cast<char>(std::tolower(static_cast<unsigned char>(type[i])));
  }
  return out;
}

// `base`, or `base` with the lowest number that makes it new; adds it to `taken`.
std::string unique_name(const std::string& base, std::set<std::string>& taken) {
  std::string name = base;
  for (int i = 1; !taken.insert(name).second; ++i) name = str(base, "_", i);
  return name;
}

// The name of a layer that is used by itself: numbered within the process.
std::string standalone_name(const std::string& base) {
  static std::mutex mutex;
  static std::map<std::string, int> used;
  const std::lock_guard lock(mutex);
  const int number = used[base]++;
  return number == 0 ? base : str(base, "_", number);
}

// What follows the current scope in the name of a variable that is in it, "dense" of
// "top/dense/kernel" in "top"; else nothing.
std::string part_in_scope(std::string_view name) {
  const std::string& scope = NameScope::current();
  if (!scope.empty()) {
    if (!name.starts_with(scope + '/')) return "";
    name.remove_prefix(scope.size() + 1);
  }
  return std::string(name.substr(0, name.find('/')));
}

// Of the inputs that there are: a value without a node stands for none.
std::vector<TensorSpec> specs_of_given(const std::vector<Value>& inputs) {
  std::vector<TensorSpec> specs;
  for (const Value& input : inputs)
    if (input.defined()) specs.push_back(input.spec());
  return specs;
}

// A weight without a variable, for graphs that are never run.
class Unmade final : public Resource {
 public:
  Unmade(std::string name, TensorSpec spec) : name_(std::move(name)), spec_(std::move(spec)) {}
  const std::string& name() const override { return name_; }
  const TensorSpec& spec() const override { return spec_; }

 private:
  const std::string name_;
  const TensorSpec spec_;
};

// What errors of layers begin with, but for those of a network without a name.
constexpr std::string_view kLayer = "layer \"";

std::string described(std::string_view path, const std::string& type) {
  return path.empty() ? type : str(kLayer, path, "\" (", type, ")");
}

bool is_trainable(const LayerBase& layer, const Weight& weight) {
  return layer.trainable() && weight.trainable();
}

Shape without_batch(const Shape& shape) { return shape.rank() > 0 ? shape.without_axis(0) : shape; }

}  // namespace

Weight::Weight(std::string name, TensorSpec spec, WeightOptions options)
    : name_(std::move(name)), spec_(spec), options_(std::move(options)) {}

Value Weight::read() const {
  if (t_rehearsing) return ops::read_variable(std::make_shared<Unmade>(name_, spec_));
  COHORT_CHECK(variable_ != nullptr);
  return variable_->read();
}

void Weight::assign(const Value& value) const {
  if (!t_rehearsing) variable_->assign(value);
}

void Weight::assign_add(const Value& delta) const {
  if (!t_rehearsing) variable_->assign_add(delta);
}

void Weight::assign_sub(const Value& delta) const {
  if (!t_rehearsing) variable_->assign_sub(delta);
}

void Weight::create() {
  if (variable_ != nullptr) return;
  const std::string full_name = str(NameScope::current(), "/", name_);
  if (!options_.initializer) invalid("the initializer of \"", full_name, "\" is an empty function");
  const auto initial_value = [this, full_name] {
    return options_.initializer(spec_, mix(global_seed(), fnv1a(full_name)));
  };
  variable_ = create_variable({.name = name_,
                               .spec = spec_,
                               .initial_value = initial_value,
                               .trainable = options_.trainable,
                               .synchronization = options_.synchronization,
                               .aggregation = options_.aggregation,
                               .constraint = options_.constraint});
}

std::vector<Layer> LayerBase::sublayers() const { return {}; }

Value LayerBase::call(const std::vector<Value>& /*inputs*/, const CallContext& /*context*/) {
  fail(Code::kUnimplemented, "the layer overrides neither call() nor call_all()");
}

std::vector<Value> LayerBase::call_all(const std::vector<Value>& inputs,
                                       const CallContext& context) {
  return {call(inputs, context)};
}

Weight& LayerBase::add_weight(std::string name, Shape shape, WeightOptions options, DType dtype) {
  weights_.push_back(
      std::make_unique<Weight>(std::move(name), TensorSpec{dtype, shape}, std::move(options)));
  return *weights_.back();
}

void LayerBase::add_loss(const Value& loss) {
  if (!loss.defined() || loss.shape().rank() > 0 || !is_floating(loss.dtype()))
    invalid("add_loss takes a floating scalar, got ", loss.defined() ? str(loss.spec()) : "none");
  AddedLosses::add(loss);
}

std::vector<Layer> LayerBase::listed() const {
  std::vector<Layer> layers = sublayers();
  for (const Layer& layer : layers)
    if (!layer) invalid(described(name_, type_), " has an empty layer among its sublayers");
  return layers;
}

void LayerBase::name_sublayers() {
  const std::vector<Layer> layers = listed();
  std::set<std::string> taken;
  for (const Layer& layer : layers)
    if (!layer.name().empty() && !taken.insert(layer.name()).second)
      invalid("two layers of one network are named \"", layer.name(),
              "\"; names must differ: give one of them another when it is made");
  // A network without a name that was built by itself has put none before those of its weights.
  for (const Layer& layer : layers)
    for (const auto& variable : layer.variables()) taken.insert(part_in_scope(variable->name()));
  for (const Layer& layer : layers)
    if (layer.name().empty()) layer.base_->name_ = unique_name(snake_case(layer.type()), taken);
}

// Networks that were built by themselves may come with weights that have the names of others, with
// which they could not be saved.
void LayerBase::refuse_equal_names() const {
  std::map<std::string, std::pair<std::shared_ptr<Variable>, Layer>> found;
  for (const Layer& layer : listed())
    for (const auto& variable : layer.variables()) {
      const auto& [first, owner] =
          found.try_emplace(variable->name(), variable, layer).first->second;
      if (first != variable)
        invalid("two weights of one network are named \"", variable->name(),
                "\", those of its layers \"", owner.name(), "\" and \"", layer.name(),
                "\"; names must differ: give one of these, or the layer in it that has the weight, "
                "another when it is made");
    }
}

// Whether it has weights that an optimizer may change.
bool LayerBase::is_trained() const {
  if (trainable_ && std::any_of(weights_.begin(), weights_.end(),
                                [](const auto& weight) { return weight->trainable(); }))
    return true;
  const std::vector<Layer> layers = listed();
  return std::any_of(layers.begin(), layers.end(),
                     [](const Layer& layer) { return layer.base_->is_trained(); });
}

void LayerBase::collect(std::set<const LayerBase*>& network) const {
  if (!network.insert(this).second) return;
  for (const Layer& layer : listed()) layer.base_->collect(network);
}

// In the outermost call, when it is through: weights of layers that nobody lists are in none of its
// lists of variables.
void LayerBase::warn_of_unlisted() const {
  std::set<const LayerBase*> network;
  collect(network);
  for (const auto& [layer, path, caller] : t_inner_calls) {
    LayerBase& called = *layer.base_;
    const bool is_lost = network.count(caller) > 0 && network.count(&called) == 0;
    if (!is_lost || called.warned_ || !called.is_trained()) continue;
    called.warned_ = true;
    print_notice(str("warning: no sublayers() list ", described(path, called.type_), ", which a ",
                     caller->type_,
                     " calls: its weights are neither trained nor saved with the network\n"));
  }
}

// What build() makes is named and frozen as what was there before; what had been thawed stays so.
void LayerBase::build_once(const std::vector<TensorSpec>& inputs) {
  if (built_) return;
  const std::vector<Layer> before = listed();
  build(inputs);
  name_sublayers();
  built_ = true;
  if (trainable_) return;
  for (const Layer& layer : listed())
    if (std::find(before.begin(), before.end(), layer) == before.end()) layer.set_trainable(false);
}

void LayerBase::check_outputs(size_t count) const {
  const std::vector<std::string> names = output_names();
  if (count == 0 || names.size() != count)
    invalid("gives ", count, " outputs, and has names for ", names.size());
  if (count == 1) return;
  std::set<std::string> taken;
  for (const std::string& name : names) {
    if (name.empty()) invalid("one of its ", count, " outputs has no name");
    if (!taken.insert(name).second)
      invalid("two of its outputs are named \"", name,
              "\"; names must differ: put a layer of another name behind one of them");
  }
}

std::vector<Value> LayerBase::apply(const std::vector<Value>& inputs, const CallContext& context) {
  const bool needs_name = name_.empty() && !is_nameless_alone();
  if (needs_name && !t_rehearsing) name_ = standalone_name(snake_case(type_));
  const std::string& scope_name = needs_name && t_rehearsing ? snake_case(type_) : name_;
  std::optional<NameScope> scope;
  if (!scope_name.empty()) scope.emplace(scope_name);
  name_sublayers();
  try {
    build_once(specs_of_given(inputs));
    if (!t_rehearsing)
      for (const auto& weight : weights_) weight->create();
    const Calling calling(*this);
    std::vector<Value> outputs = call_all(inputs, context);
    refuse_equal_names();
    check_outputs(outputs.size());
    if (t_calling.size() == 1 && !t_rehearsing) warn_of_unlisted();
    output_ = outputs.front().spec();
    return outputs;
  } catch (const Error& error) {
    if (!built_) weights_.clear();
    // The layer inside has said it, or it is another worker's, whatever that has done.
    if (error.message().starts_with(kLayer) || !error.peer().empty()) throw;
    const std::string given = comma_separated(specs_of_given(inputs));
    throw error.with_context(
        str(described(NameScope::current(), type_), given.empty() ? "" : " of ", given));
  }
}

LayerBase& Layer::base() const {
  if (base_ == nullptr) invalid("an empty layer was used; it was never assigned");
  return *base_;
}

void Layer::require_one_output() const {
  const std::vector<std::string> names = output_names();
  if (names.size() != 1)
    invalid(described(name(), type()), " has the outputs ", comma_separated(names),
            ": outputs() gives them all");
}

Value Layer::operator()(const Value& x, const CallContext& context) const {
  return (*this)(std::vector<Value>{x}, context);
}

Value Layer::operator()(const std::vector<Value>& inputs, const CallContext& context) const {
  require_one_output();
  return outputs(inputs, context).front();
}

std::vector<Value> Layer::outputs(const std::vector<Value>& inputs,
                                  const CallContext& context) const {
  std::vector<Value> outputs = base().apply(inputs, context);
  if (!t_calling.empty())
    t_inner_calls.push_back({*this, str(NameScope::current(), "/", name()), t_calling.back()});
  return outputs;
}

std::vector<TensorSpec> Layer::rehearse(const std::vector<TensorSpec>& inputs) const {
  Graph graph;
  const GraphScope scope(graph);
  const AddedLosses passed_over;
  std::vector<Value> values;
  for (const TensorSpec& spec : inputs) values.push_back(graph.add_input("input", spec));
  return specs_of_given(base().apply(values, {}));
}

void Layer::build(const std::vector<TensorSpec>& inputs) const { rehearse(inputs); }

TensorSpec Layer::output_spec(const std::vector<TensorSpec>& inputs) const {
  require_one_output();
  return output_specs(inputs).front();
}

std::vector<TensorSpec> Layer::output_specs(const std::vector<TensorSpec>& inputs) const {
  const Rehearsal rehearsal;
  return rehearse(inputs);
}

void Layer::each_weight(const std::function<void(const LayerBase&, const Weight&)>& visit) const {
  std::set<const LayerBase*> seen;
  const auto walk = [&](const Layer& layer, const auto& self) -> void {
    const LayerBase& base = layer.base();
    if (!seen.insert(&base).second) return;
    for (const auto& weight : base.weights_) visit(base, *weight);
    for (const Layer& sublayer : layer.sublayers()) self(sublayer, self);
  };
  walk(*this, walk);
}

std::vector<std::shared_ptr<Variable>> Layer::variables() const {
  std::vector<std::shared_ptr<Variable>> variables;
  each_weight([&](const LayerBase&, const Weight& w) {
    if (w.variable() != nullptr) variables.push_back(w.variable());
  });
  return variables;
}

std::vector<std::shared_ptr<Variable>> Layer::trainable_variables() const {
  std::vector<std::shared_ptr<Variable>> variables;
  each_weight([&](const LayerBase& layer, const Weight& w) {
    if (w.variable() != nullptr && is_trainable(layer, w)) variables.push_back(w.variable());
  });
  return variables;
}

void Layer::set_trainable(bool trainable) const {
  base().trainable_ = trainable;
  for (const Layer& layer : sublayers()) layer.set_trainable(trainable);
}

Value Layer::regularization_loss() const {
  Value total;
  each_weight([&](const LayerBase& layer, const Weight& w) {
    if (!w.options().regularizer || w.variable() == nullptr || !is_trainable(layer, w)) return;
    const Value penalty = w.options().regularizer(w.read());
    total = total.defined() ? total + penalty : penalty;
  });
  return total;
}

LayerSummary Layer::summary() const {
  LayerSummary summary{
      .name = name(), .type = type(), .output_shape = without_batch(base().output_.shape)};
  each_weight([&](const LayerBase& layer, const Weight& w) {
    const int64_t count = w.spec().shape.num_elements();
    summary.parameters += count;
    if (is_trainable(layer, w)) summary.trainable_parameters += count;
  });
  return summary;
}

}  // namespace cohort::nn
