#include "core/tensor/elementwise_program.h"

#include <array>

#include "core/base/error.h"

namespace cohort {
namespace {

constexpr auto kNames = std::to_array<std::string_view>(
    {"Cast",     "Neg",      "Abs",         "Sign",       "Exp",          "Expm1",      "Log",
     "Log1p",    "Sqrt",     "Rsqrt",       "Square",     "Reciprocal",   "Tanh",       "Erf",
     "Sin",      "Cos",      "Floor",       "Round",      "Sigmoid",      "Softplus",   "Relu",
     "Gelu",     "GeluTanh", "Silu",        "LogicalNot", "IsFinite",     "Add",        "Sub",
     "Mul",      "Div",      "Pow",         "Mod",        "Maximum",      "Minimum",    "Equal",
     "NotEqual", "Less",     "LessEqual",   "Greater",    "GreaterEqual", "LogicalAnd", "LogicalOr",
     "ReluGrad", "TanhGrad", "SigmoidGrad", "GeluGrad",   "GeluTanhGrad", "SiluGrad",   "Select"});
static_assert(kNames.size() == static_cast<size_t>(Scalar::kCount));

constexpr int64_t kMaxInstructions = 4096;

}  // namespace

int scalar_arity(Scalar op) {
  if (op == Scalar::kSelect) return 3;
  return op >= Scalar::kAdd ? 2 : 1;
}

std::string_view scalar_name(Scalar op) { return kNames[static_cast<size_t>(op)]; }

bool scalar_from_name(std::string_view name, Scalar& op) {
  for (size_t i = 0; i < kNames.size(); ++i) {
    if (kNames[i] != name) continue;
    op = static_cast<Scalar>(i);
    return true;
  }
  return false;
}

std::vector<int64_t> ElementwiseProgram::encode() const {
  std::vector<int64_t> out = {num_inputs, static_cast<int64_t>(instructions.size())};
  for (const auto& i : instructions)
    out.insert(out.end(), {static_cast<int64_t>(i.op), i.a, i.b, i.c});
  out.insert(out.end(), outputs.begin(), outputs.end());
  return out;
}

ElementwiseProgram ElementwiseProgram::decode(const std::vector<int64_t>& encoded) {
  const auto require = [](bool good) {
    if (!good) invalid("attribute \"program\" is not an elementwise program");
  };
  require(encoded.size() >= 2 && encoded[0] >= 0 && encoded[0] <= kMaxInstructions &&
          encoded[1] >= 0 && encoded[1] <= kMaxInstructions &&
          encoded.size() >= 2 + 4 * static_cast<size_t>(encoded[1]));
  ElementwiseProgram program;
  program.num_inputs = static_cast<int>(encoded[0]);
  const int64_t* word = encoded.data() + 2;
  for (int64_t i = 0; i < encoded[1]; ++i, word += 4) {
    const int64_t known = program.num_inputs + i;
    require(word[0] >= 0 && word[0] < static_cast<int64_t>(Scalar::kCount));
    for (int k = 1; k <= 3; ++k) require(word[k] >= 0 && (word[k] < known || word[k] == 0));
    program.instructions.push_back({static_cast<Scalar>(word[0]), word[1], word[2], word[3]});
  }
  program.outputs.assign(word, encoded.data() + encoded.size());
  for (int64_t r : program.outputs) require(r >= 0 && r < program.num_inputs + encoded[1]);
  require(!program.outputs.empty());
  return program;
}

}  // namespace cohort
