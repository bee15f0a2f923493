#include "core/graph/serialization.h"

#include <climits>
#include <cstring>
#include <map>
#include <optional>
#include <set>

#include "core/base/crc32c.h"
#include "core/base/random.h"
#include "core/graph/branch.h"
#include "core/graph/op.h"
#include "core/tensor/bool_bytes.h"
#include "proto/graph.pb.h"

namespace cohort {
namespace {

constexpr int kFormat = 1;
constexpr int kMaxNodes = 1 << 20;
constexpr size_t kMaxName = 4096;
constexpr size_t kCheckBytes = 5;  // of the field that ends a serialised function

void write(const TensorSpec& spec, proto::TensorSpec& out) {
  out.set_dtype(static_cast<int>(spec.dtype));
  for (int64_t extent : spec.shape) out.add_shape(extent);
}

void write(const Value& value, proto::Endpoint& out) {
  out.set_node(value.node().id());
  out.set_output(value.index());
}

struct AttributeWriter {
  proto::Attribute& out;

  void operator()(bool value) const { out.set_flag(value); }
  void operator()(int64_t value) const { out.set_integer(value); }
  void operator()(double value) const { out.set_number(value); }
  void operator()(const std::string& value) const { out.set_text(value); }
  void operator()(const std::vector<int64_t>& value) const {
    out.mutable_integers()->mutable_values()->Add(value.begin(), value.end());
  }
  void operator()(DType value) const { out.set_dtype(static_cast<int>(value)); }
  void operator()(const Tensor& value) const {
    write(value.spec(), *out.mutable_tensor()->mutable_spec());
    out.mutable_tensor()->set_data(value.raw(), value.bytes());
  }
};

void write(const Node& node, proto::Node& out) {
  out.set_name(node.name());
  out.set_op(node.op().name);
  for (const Value& input : node.inputs()) write(input, *out.add_inputs());
  for (const auto& [name, value] : node.attributes()) {
    proto::Attribute& attribute = *out.add_attributes();
    attribute.set_name(name);
    std::visit(AttributeWriter{attribute}, value);
  }
  for (const TensorSpec& spec : node.outputs()) write(spec, *out.add_outputs());
  if (node.resource() != nullptr) out.set_resource(node.resource()->name());
  if (node.branch().defined()) write(node.branch(), *out.mutable_branch());
}

void write_resources(const Graph& graph, proto::Graph& out) {
  std::map<std::string, const Resource*> resources;
  for (const auto& node : graph.nodes()) {
    const Resource* resource = node->resource();
    if (resource == nullptr) continue;
    const auto [known, is_new] = resources.emplace(resource->name(), resource);
    if (known->second != resource)
      invalid(
          "two variables of the graph have the name \"", resource->name(),
          "\", by which it would name them elsewhere: give each its own, such as an optimizer its "
          "`name`");
    if (!is_new) continue;
    out.add_resources()->set_name(resource->name());
    write(resource->spec(), *out.mutable_resources()->rbegin()->mutable_spec());
  }
}

DType read_dtype(int number) {
  if (number < 0 || number >= kNumDTypes) invalid(number, " is not a dtype");
  return static_cast<DType>(number);
}

TensorSpec read_spec(const proto::TensorSpec& in) {
  return {read_dtype(in.dtype()),
          Shape(std::span<const int64_t>(in.shape().data(), in.shape().size()))};
}

Tensor read_tensor(const proto::Tensor& in) {
  const TensorSpec spec = read_spec(in.spec());
  // Compared by division: the product may overflow.
  const size_t elements = static_cast<size_t>(spec.shape.num_elements()),
               size = dtype_size(spec.dtype);
  if (in.data().size() % size != 0 || in.data().size() / size != elements)
    invalid("a tensor ", spec, " comes with ", in.data().size(), " bytes");
  Tensor tensor(spec.dtype, spec.shape);
  std::memcpy(tensor.raw(), in.data().data(), in.data().size());
  normalize_bools(tensor);
  return tensor;
}

AttributeValue read_attribute(const proto::Attribute& in) {
  switch (in.value_case()) {
    case proto::Attribute::kFlag:
      return in.flag();
    case proto::Attribute::kInteger:
      return int64_t{in.integer()};
    case proto::Attribute::kNumber:
      return in.number();
    case proto::Attribute::kText:
      return in.text();
    case proto::Attribute::kIntegers:
      return std::vector<int64_t>(in.integers().values().begin(), in.integers().values().end());
    case proto::Attribute::kDtype:
      return read_dtype(in.dtype());
    case proto::Attribute::kTensor:
      return read_tensor(in.tensor());
    case proto::Attribute::VALUE_NOT_SET:
      break;
  }
  invalid("attribute \"", in.name(), "\" has no value");
}

// Rebuilds a function node by node.
class Importer {
 public:
  Importer(const proto::Graph& in, const ResourceResolver& resolve) : in_(in) {
    if (in.format() != kFormat) invalid("graph format ", in.format(), " is not ", kFormat);
    if (in.nodes_size() > kMaxNodes)
      invalid(in.nodes_size(), " nodes are more than the limit of ", kMaxNodes);
    for (const auto& resource : in.resources()) add_resource(resource, resolve);
  }

  GraphFunction run() && {
    for (int i = 0; i < in_.nodes_size(); ++i) {
      const proto::Node& node = in_.nodes(i);
      try {
        add(node);
      } catch (const Error& error) {
        throw error.with_context(str("node ", i, " \"", node.name().substr(0, kMaxName), '"'));
      }
    }
    if (!reducing_.empty())
      invalid("no AllReduceWait takes what \"", (*reducing_.begin())->name(), "\" starts");
    for (const auto& output : in_.outputs()) function_.outputs.push_back(value(output));
    return std::move(function_);
  }

 private:
  void add_resource(const proto::Resource& in, const ResourceResolver& resolve) {
    if (in.name().empty() || in.name().size() > kMaxName)
      invalid("a variable has no name, or one that is too long");
    const TensorSpec spec = read_spec(in.spec());
    if (!resolve)
      invalid("the graph names variable \"", in.name(), "\", and what finds variables is empty");
    auto resource = resolve(in.name());
    if (resource == nullptr) fail(Code::kNotFound, "there is no variable \"", in.name(), '"');
    if (resource->spec() != spec)
      invalid("variable \"", in.name(), "\" is ", resource->spec(), " here, ", spec,
              " in the graph");
    if (!resources_.emplace(in.name(), std::move(resource)).second)
      invalid("variable \"", in.name(), "\" is listed twice");
  }

  Value value(const proto::Endpoint& in) const {
    const auto& nodes = function_.graph->nodes();
    if (in.node() < 0 || static_cast<size_t>(in.node()) >= nodes.size())
      invalid("node ", in.node(), " is used but not among the ", nodes.size(), " before");
    Node& node = *nodes[in.node()];
    if (in.output() < 0 || static_cast<size_t>(in.output()) >= node.outputs().size())
      invalid("node ", in.node(), " has no output ", in.output());
    return node.output(in.output());
  }

  Attributes read_attributes(const proto::Node& in) const {
    Attributes attributes;
    for (const auto& attribute : in.attributes()) {
      if (attributes.has(attribute.name()))
        invalid("attribute \"", attribute.name(), "\" is given twice");
      attributes.set(attribute.name(), read_attribute(attribute));
    }
    check_attributes(find_op(in.op()), attributes);
    return attributes;
  }

  std::shared_ptr<Resource> find_resource(const proto::Node& in) const {
    if (in.resource().empty()) return nullptr;
    const auto known = resources_.find(in.resource());
    if (known == resources_.end()) invalid("variable \"", in.resource(), "\" is not listed");
    return known->second;
  }

  void add(const proto::Node& in) {
    if (in.name().size() > kMaxName) invalid("the name is too long");
    std::vector<Value> inputs;
    for (const auto& input : in.inputs()) inputs.push_back(value(input));
    Attributes attributes = read_attributes(in);
    std::optional<BranchScope> branch;
    if (in.has_branch()) branch.emplace(value(in.branch()));
    Node& node = in.op() == "Input"
                     ? add_input(in, inputs, attributes)
                     : function_.graph->add_named(in.name(), in.op(), std::move(inputs),
                                                  std::move(attributes), find_resource(in));
    check_outputs(in, node);
    if (in.op() == "AllReduceStart") reducing_.insert(&node);
    if (in.op() == "AllReduceWait") end_reduction(node);
  }

  // A wait is for one reduction, which exists, and each reduction has one: without it, it would go
  // on in memory that has other values by then.
  void end_reduction(const Node& wait) {
    Node& start = wait.inputs()[0].node();
    bool takes_all = wait.inputs().size() == start.outputs().size();
    for (size_t i = 0; takes_all && i < start.outputs().size(); ++i)
      takes_all = wait.inputs()[i].is_same(start.output(static_cast<int>(i)));
    if (!takes_all || reducing_.erase(&start) == 0)
      invalid("an AllReduceWait takes all outputs of one AllReduceStart, which no other one takes");
  }

  Node& add_input(const proto::Node& in, const std::vector<Value>& inputs,
                  const Attributes& attributes) {
    if (!inputs.empty() || !in.resource().empty())
      invalid("a graph input has inputs, or names a variable");
    const TensorSpec spec{attributes.get<DType>("dtype"),
                          Shape(attributes.get<std::vector<int64_t>>("shape"))};
    return function_.graph->add_input(in.name(), spec).node();
  }

  static void check_outputs(const proto::Node& in, const Node& node) {
    std::vector<TensorSpec> declared;
    for (const auto& output : in.outputs()) declared.push_back(read_spec(output));
    if (declared != node.outputs()) invalid("the declared outputs are not those of op ", in.op());
  }

  const proto::Graph& in_;
  GraphFunction function_;
  std::map<std::string, std::shared_ptr<Resource>> resources_;
  std::set<const Node*> reducing_;  // each AllReduceStart that no wait has come for so far
};

void require_undamaged(std::string_view bytes, const proto::Graph& in) {
  if (!in.has_check())
    fail(Code::kDataLoss, "the serialised function of ", bytes.size(), " bytes has no check");
  const uint32_t found = crc32c(bytes.substr(0, bytes.size() - kCheckBytes));
  if (found != in.check())
    fail(Code::kDataLoss, "the serialised function of ", bytes.size(),
         " bytes is damaged: its CRC-32C is ", found, ", expected ", in.check());
}

}  // namespace

std::string serialize_function(const GraphFunction& function) {
  proto::Graph out;
  out.set_format(kFormat);
  write_resources(*function.graph, out);
  for (const auto& node : function.graph->nodes()) write(*node, *out.add_nodes());
  for (const Value& output : function.outputs) write(output, *out.add_outputs());
  const size_t size = out.ByteSizeLong() + kCheckBytes;
  if (size > INT_MAX)
    fail(Code::kResourceExhausted, "the function takes ", size, " bytes; the limit is 2 GiB");
  std::string bytes;
  bytes.reserve(size);
  out.AppendToString(&bytes);
  proto::Graph end;
  end.set_check(crc32c(bytes));
  end.AppendToString(&bytes);
  return bytes;
}

uint64_t fingerprint(const GraphFunction& function) {
  uint64_t number = 0;
  const auto add = [&number](const google::protobuf::MessageLite& part) {
    const std::string bytes = part.SerializeAsString();
    number = mix(number, crc32c(bytes), bytes.size());
  };
  for (const auto& node : function.graph->nodes()) {
    proto::Node out;
    write(*node, out);
    out.clear_name();
    add(out);
    if (node->resource() == nullptr) continue;
    proto::TensorSpec spec;
    write(node->resource()->spec(), spec);
    add(spec);
  }
  for (const Value& output : function.outputs) {
    proto::Endpoint out;
    write(output, out);
    add(out);
  }
  return number;
}

GraphFunction import_function(std::string_view bytes, const ResourceResolver& resolve) {
  proto::Graph in;
  if (bytes.size() > INT_MAX || !in.ParseFromArray(bytes.data(), static_cast<int>(bytes.size())))
    fail(Code::kDataLoss, "the bytes are not a serialised function");
  require_undamaged(bytes, in);
  return Importer(in, resolve).run();
}

}  // namespace cohort
