#include "core/kernels/cuda/program_source.h"

#include <algorithm>
#include <tuple>
#include <type_traits>
#include <utility>

#include "core/kernels/common/broadcast_view.h"
#include "core/kernels/common/functor_list.h"

namespace cohort::cuda {
namespace {

// A kernel's parameters may have 4 KiB on all cards.
constexpr int kMaxParameterWords = 4096 / 8;

std::string_view type_name(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return "float";
    case DType::kFloat64:
      return "double";
    case DType::kBFloat16:
      return "cohort::bfloat16";
    case DType::kFloat16:
      return "cohort::float16";
    case DType::kInt32:
      return "int32_t";
    case DType::kInt64:
      return "int64_t";
    case DType::kUInt8:
      return "uint8_t";
    case DType::kBool:
      return "bool";
  }
  return "";
}

template <typename F, typename T>
constexpr bool exists_for =
    std::is_invocable_v<F, T> || std::is_invocable_v<F, T, T> || std::is_invocable_v<F, T, T, T>;

template <typename T, size_t... i>
bool exists(Scalar op, std::index_sequence<i...>) {
  return ((static_cast<size_t>(op) == i && exists_for<std::tuple_element_t<i, functors::All>, T>) ||
          ...);
}

void require_exists(Scalar op, DType compute, DType shown) {
  constexpr auto kOps = std::make_index_sequence<static_cast<size_t>(Scalar::kCount)>{};
  const bool found = compute == DType::kInt64 ? exists<int64_t>(op, kOps) : exists<float>(op, kOps);
  if (!found) fail(Code::kUnimplemented, scalar_name(op), " does not support ", shown);
}

// Scalar::kCopy is named after its op in graphs, "Cast".
std::string_view functor_name(Scalar op) { return op == Scalar::kCopy ? "Copy" : scalar_name(op); }

// The element of an input that output element i is made of.
std::string index_of(const Shape& input, const Shape& output) {
  const BroadcastView view(input, output);
  if (view.same_order()) return "i";
  std::string sum;
  int64_t below = 1;  // elements of the output for each step along the axis
  for (int axis = view.rank() - 1; axis >= 0; --axis) {
    if (view.stride(axis) != 0) {
      std::string term = below == 1 ? "i" : str("i / ", below);
      if (axis > 0) term = str("(", term, ") % ", view.extent(axis));
      sum += str(sum.empty() ? "" : " + ", "(", term, ") * ", view.stride(axis));
    }
    below *= view.extent(axis);
  }
  return sum.empty() ? "0" : sum;
}

std::string operands(const ElementwiseProgram::Instruction& instruction) {
  const int arity = scalar_arity(instruction.op);
  std::string text = str("r", instruction.a);
  if (arity > 1) text += str(", r", instruction.b);
  if (arity > 2) text += str(", r", instruction.c);
  return text;
}

}  // namespace

ProgramSource program_source(const ElementwiseProgram& program, DType compute,
                             const std::vector<TensorSpec>& inputs,
                             const std::vector<TensorSpec>& outputs) {
  const int tensors = static_cast<int>(inputs.size() + outputs.size());
  ProgramSource source{.group_words = 2 + tensors};
  source.max_groups = std::max(1, (kMaxParameterWords - 1) / source.group_words);
  const std::string_view type = type_name(compute);
  std::string body;
  for (size_t k = 0; k < inputs.size(); ++k)
    body += str("    const ", type, " r", k, " = cohort::convert<", type,
                ">(reinterpret_cast<const ", type_name(inputs[k].dtype), "*>(group[", 2 + k, "])[",
                index_of(inputs[k].shape, outputs[0].shape), "]);\n");
  for (size_t k = 0; k < program.instructions.size(); ++k) {
    const auto& instruction = program.instructions[k];
    require_exists(instruction.op, compute, inputs.empty() ? compute : inputs[0].dtype);
    body += str("    const ", type, " r", inputs.size() + k,
                " = cohort::functors::", functor_name(instruction.op), "{}(", operands(instruction),
                ");\n");
  }
  for (size_t k = 0; k < outputs.size(); ++k) {
    const std::string_view stored = type_name(outputs[k].dtype);
    body += str("    reinterpret_cast<", stored, "*>(group[", 2 + inputs.size() + k,
                "])[i] = cohort::convert<", stored, ">(r", program.outputs[k], ");\n");
  }
  source.text =
      str("#include \"core/kernels/common/convert.h\"\n"
          "#include \"core/kernels/common/functors.h\"\n\n"
          "struct Groups {\n  int64_t count;\n  int64_t words[",
          source.group_words * source.max_groups,
          "];\n};\n\n"
          "extern \"C\" __global__ void run(const Groups groups) {\n"
          "  const int64_t* group = groups.words;\n"
          "  for (int64_t g = 1; g < groups.count && blockIdx.x >= group[",
          source.group_words, "]; ++g) group += ", source.group_words,
          ";\n"
          "  const int64_t first = (blockIdx.x - group[0]) * ",
          kBlockElements,
          ";\n"
          "  const int64_t end = first + ",
          kBlockElements, " < group[1] ? first + ", kBlockElements,
          " : group[1];\n"
          "  for (int64_t i = first + threadIdx.x; i < end; i += ",
          kBlockThreads, ") {\n", body, "  }\n}\n");
  return source;
}

int64_t write_groups(std::span<const ProgramGroup> groups, std::span<int64_t> words) {
  int64_t* word = words.data();
  *word++ = static_cast<int64_t>(groups.size());
  int64_t blocks = 0;
  for (const ProgramGroup& group : groups) {
    *word++ = blocks;
    *word++ = group.elements;
    for (const void* input : group.inputs) *word++ = reinterpret_cast<int64_t>(input);
    for (void* output : group.outputs) *word++ = reinterpret_cast<int64_t>(output);
    blocks += (group.elements + kBlockElements - 1) / kBlockElements;
  }
  COHORT_CHECK(word <= words.data() + words.size());
  return blocks;
}

}  // namespace cohort::cuda
