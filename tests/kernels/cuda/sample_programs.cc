#include "tests/kernels/cuda/sample_programs.h"

#include "core/kernels/common/functor_list.h"

namespace cohort::testing {
namespace {

template <typename F, typename T>
constexpr bool kExists =
    std::is_invocable_v<F, T> || std::is_invocable_v<F, T, T> || std::is_invocable_v<F, T, T, T>;

// Every operation that exists for T, on the inputs themselves, each with an output of its own.
template <typename T>
SampleProgram all_operations(const std::string& name) {
  constexpr int kInputs = 3;
  SampleProgram sample{.name = name, .compute = dtype_of<T>};
  sample.program.num_inputs = kInputs;
  const TensorSpec spec{dtype_of<T>, {1500}};  // more than a block does
  sample.inputs.assign(kInputs, spec);
  [&]<size_t... i>(std::index_sequence<i...>) {
    const auto add = [&](Scalar op, bool exists) {
      if (!exists) return;
      sample.program.outputs.push_back(kInputs +
                                       static_cast<int64_t>(sample.program.instructions.size()));
      const int arity = scalar_arity(op);
      sample.program.instructions.push_back({op, 0, arity > 1 ? 1 : 0, arity > 2 ? 2 : 0});
    };
    (add(static_cast<Scalar>(i), kExists<std::tuple_element_t<i, functors::All>, T>), ...);
  }
  (std::make_index_sequence<static_cast<size_t>(Scalar::kCount)>{});
  sample.outputs.assign(sample.program.outputs.size(), spec);
  return sample;
}

// x0 * x1 + x2 - x3, each read another way.
SampleProgram broadcasts() {
  const auto f = [](const Shape& shape) { return TensorSpec{DType::kFloat32, shape}; };
  return {.name = "broadcasts",
          .program = {.num_inputs = 6,
                      .instructions = {{Scalar::kMul, 0, 1},
                                       {Scalar::kAdd, 6, 2},
                                       {Scalar::kSub, 7, 3},
                                       {Scalar::kMaximum, 8, 4},
                                       {Scalar::kAdd, 9, 5}},
                      .outputs = {10}},
          .compute = DType::kFloat32,
          .inputs = {f({7, 5, 6}), f({6}), f({5, 1}), f({}), f({7, 1, 6}), f({7, 1, 1})},
          .outputs = {f({7, 5, 6})}};
}

// Every dtype is read, and every one written.
SampleProgram conversions() {
  SampleProgram sample{.name = "conversions", .compute = DType::kFloat64};
  const Shape shape{300};
  for (int d = 0; d < kNumDTypes; ++d) {
    const TensorSpec spec{static_cast<DType>(d), shape};
    sample.inputs.push_back(spec);
    sample.outputs.push_back(spec);
    sample.program.outputs.push_back((d + 3) % kNumDTypes);
  }
  sample.program.num_inputs = kNumDTypes;
  return sample;
}

// w -= rate * g for variables of many sizes: several to a launch, and several launches.
SampleProgram updates() {
  SampleProgram sample{.name = "updates",
                       .program = {.num_inputs = 3,
                                   .instructions = {{Scalar::kMul, 1, 2}, {Scalar::kSub, 0, 3}},
                                   .outputs = {4}},
                       .compute = DType::kFloat32,
                       .groups = 100};
  for (int64_t g = 0; g < sample.groups; ++g) {
    const TensorSpec w{DType::kFloat32, {(g * 37) % 3000}};
    sample.inputs.insert(sample.inputs.end(), {w, w, {DType::kFloat32, {}}});
    sample.outputs.push_back(w);
  }
  return sample;
}

}  // namespace

std::vector<SampleProgram> sample_programs() {
  return {all_operations<float>("float32"),
          all_operations<double>("float64"),
          all_operations<int64_t>("int64"),
          broadcasts(),
          conversions(),
          updates()};
}

}  // namespace cohort::testing
