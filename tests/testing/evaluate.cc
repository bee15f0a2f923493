#include "tests/testing/evaluate.h"

#include <algorithm>
#include <cstring>
#include <map>

#include "core/base/threads.h"
#include "core/graph/op.h"
#include "core/graph/value_map.h"
#include "core/kernels/kernel.h"
#include "core/tensor/specs_of.h"

namespace cohort::testing {
namespace {

using Results = ValueMap<Tensor>;

// An unwritten element must not look like a right one.
void poison(Tensor& tensor) { std::memset(tensor.raw(), 0xCD, tensor.bytes()); }

KernelSpec kernel_spec(const Node& node) {
  KernelSpec spec{.op = node.op().name,
                  .inputs = specs_of(node.inputs()),
                  .outputs = node.outputs(),
                  .attributes = node.attributes()};
  if (node.resource() != nullptr) spec.outputs = {node.resource()->spec()};
  spec.num_threads = num_threads();
  return spec;
}

// Runs the node's kernel; a write gets the variable's memory as its output.
std::vector<Tensor> run_kernel(const Node& node, const std::vector<Tensor>& inputs) {
  const KernelSpec spec = kernel_spec(node);
  std::vector<Tensor> outputs;
  for (const TensorSpec& output : spec.outputs) {
    outputs.emplace_back(output.dtype, output.shape);
    poison(outputs.back());
  }
  if (node.resource() != nullptr) outputs = {dynamic_cast<TestVariable&>(*node.resource()).value};
  std::vector<const void*> in;
  std::vector<void*> out;
  for (const Tensor& input : inputs) in.push_back(input.raw());
  for (Tensor& output : outputs) out.push_back(output.raw());
  const auto kernel = make_kernel(spec);
  const auto scratch = allocate_host_buffer(kernel->scratch_bytes());
  const StepInfo step;
  kernel->run({in, out, scratch->data, step});
  return outputs;
}

std::vector<Tensor> run(const Node& node, const std::vector<Tensor>& inputs,
                        const std::vector<Tensor>& feeds) {
  const std::string& op = node.op().name;
  if (op == "Constant") return {node.attributes().get<Tensor>("value")};
  if (op == "Reshape") return {inputs[0].reshape(node.outputs()[0].shape)};
  if (op == "ReadVariable") return {dynamic_cast<TestVariable&>(*node.resource()).value.clone()};
  if (op != "Input") return run_kernel(node, inputs);
  const auto& all = node.graph().inputs();
  const auto self =
      std::find_if(all.begin(), all.end(), [&](const Value& v) { return &v.node() == &node; });
  return {feeds.at(static_cast<size_t>(self - all.begin()))};
}

}  // namespace

std::vector<Tensor> evaluate(const std::vector<Value>& outputs, const std::vector<Tensor>& feeds) {
  Results results;
  for (const auto& node : outputs.at(0).graph().nodes()) {
    std::vector<Tensor> inputs;
    for (const Value& input : node->inputs()) inputs.push_back(results.at(input));
    const auto values = run(*node, inputs, feeds);
    for (size_t i = 0; i < node->outputs().size(); ++i)
      results[node->output(static_cast<int>(i))] = values.at(i).clone();
  }
  std::vector<Tensor> wanted;
  for (const Value& output : outputs) wanted.push_back(results.at(output));
  return wanted;
}

}  // namespace cohort::testing
