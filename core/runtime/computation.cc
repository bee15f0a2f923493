#include "core/runtime/computation.h"

#include <algorithm>
#include <sstream>

#include "core/graph/op.h"
#include "core/graph/passes/rewriter.h"
#include "core/runtime/variable.h"

namespace cohort {
namespace {

// Whether the results may differ by replica whatever the inputs are: of a stateful op that others
// have defined nothing else is known. Those of a reduction in two halves follow from the inputs.
bool differs_by_replica(const Node& node) {
  return node.op().name == "ReplicaId" || (node.op().stateful && !is_start(node) && !is_wait(node));
}

// Whether the results are the same on every replica whatever the inputs are.
bool makes_same(const Node& node) {
  // With a condition, the results may be the inputs.
  if (is_start(node)) return !node.attributes().get<bool>("conditional");
  const std::string& op = node.op().name;
  return op == "AllReduce" || op == "AllGather" || op == "Broadcast";
}

bool is_same_input(const ReplicaGroup& group, size_t number) {
  return number < group.same_input.size() && group.same_input[number];
}

uint64_t hash_of(std::string_view bytes) { return std::hash<std::string_view>()(bytes); }

class AttributePrinter {
 public:
  explicit AttributePrinter(std::ostream& out) : out_(out) {}

  template <typename T>
  void operator()(const T& value) const {
    out_ << value;
  }
  void operator()(const std::vector<int64_t>& values) const {
    for (const int64_t value : values) out_ << value << ' ';
  }
  void operator()(const Tensor& value) const {
    out_ << value.spec() << ' '
         << hash_of({static_cast<const char*>(value.raw()), static_cast<size_t>(value.bytes())});
  }

 private:
  std::ostream& out_;
};

}  // namespace

// Inputs come before their users, so one pass over the nodes up to the value's suffices.
uint64_t Computations::of(const Value& value) {
  const auto wanted = static_cast<size_t>(value.node().id());
  while (numbers_.size() <= wanted) follow(*graph_.nodes()[numbers_.size()]);
  const uint64_t number = numbers_[wanted];
  return number == 0 ? 0 : number + static_cast<uint64_t>(value.index());
}

void Computations::follow(const Node& node) {
  numbers_.push_back(number_of(node));
  if (meets_others(node)) ++calls_;
  if (is_write(node)) ++writes_[node.resource()];
}

uint64_t Computations::number_of(const Node& node) const {
  if (!is_same(node)) return 0;
  // 1 is as good as any, and 0 is taken.
  return group_.signatures.empty() ? 1 : std::max<uint64_t>(hash_of(text_of(node)), 1);
}

bool Computations::is_same(const Node& node) const {
  if (node.op().name == "Input") return is_same_input(group_, input_number(node));
  if (is_read(node)) {
    const auto* variable = dynamic_cast<const Variable*>(node.resource());
    return variable == nullptr || variable->is_same_on_replicas();
  }
  if (node.op().name == "CustomGradient") return known(node.inputs()[0]) != 0;
  if (makes_same(node)) return true;
  return !differs_by_replica(node) &&
         std::all_of(node.inputs().begin(), node.inputs().end(),
                     [&](const Value& input) { return known(input) != 0; });
}

// Equal for equal computations only. Calls of all replicas meet in their order, and a variable's
// value is that of the last write to it.
std::string Computations::text_of(const Node& node) const {
  std::ostringstream out;
  out << node.op().name << std::hexfloat;
  if (makes_same(node)) {
    out << " number " << calls_;
    return out.str();
  }
  if (node.op().name == "Input") out << " number " << input_number(node);
  if (const Resource* resource = node.resource()) {
    const auto writes = writes_.find(resource);
    out << " of " << resource << " after " << (writes == writes_.end() ? 0 : writes->second);
  }
  for (const auto& [name, value] : node.attributes()) {
    out << ' ' << name << '=' << value.index() << ':';
    std::visit(AttributePrinter(out), value);
  }
  for (const Value& input : node.inputs()) out << ' ' << known(input) << ':' << input.index();
  return out.str();
}

size_t Computations::input_number(const Node& node) const {
  const auto& inputs = graph_.inputs();
  const auto at = std::find_if(inputs.begin(), inputs.end(),
                               [&](const Value& input) { return &input.node() == &node; });
  return static_cast<size_t>(at - inputs.begin());
}

}  // namespace cohort
