#include "core/tensor/elementwise_program.h"
#include "tests/kernels/cpu/kernel_testing.h"

namespace cohort::testing {
namespace {

using Instruction = ElementwiseProgram::Instruction;

Attributes program_attributes(const ElementwiseProgram& program, int64_t groups = 1) {
  return {{"program", program.encode()}, {"groups", groups}};
}

// Inputs x, bias, scale: y = relu(x + bias) * scale, and z = x + bias as well.
const ElementwiseProgram kBiasRelu{
    .num_inputs = 3,
    .instructions = {{Scalar::kAdd, 0, 1}, {Scalar::kRelu, 3}, {Scalar::kMul, 4, 2}},
    .outputs = {5, 3}};

// Inputs parameter w, momentum m, gradient g, rate r: m' = 0.9 m + g given 0.9 as input 4; w' = w -
// r m'.
const ElementwiseProgram kMomentum{.num_inputs = 5,
                                   .instructions = {{Scalar::kMul, 1, 4},
                                                    {Scalar::kAdd, 5, 2},
                                                    {Scalar::kMul, 6, 3},
                                                    {Scalar::kSub, 0, 7}},
                                   .outputs = {8, 6}};

struct MomentumStep {
  std::vector<double> w, m;
};

MomentumStep momentum_reference(const Tensor& w, const Tensor& m, const Tensor& g, double rate,
                                double decay) {
  MomentumStep result{to_doubles(w), to_doubles(m)};
  const auto gradient = to_doubles(g);
  for (size_t i = 0; i < gradient.size(); ++i) {
    result.m[i] = decay * result.m[i] + gradient[i];
    result.w[i] -= rate * result.m[i];
  }
  return result;
}

TEST(FusedElementwise, RunsAChainWithBroadcastsAndSeveralOutputs) {
  for (DType dtype : {DType::kFloat32, DType::kFloat64, DType::kBFloat16, DType::kFloat16})
    for (const Shape& shape :
         {Shape{0, 3}, Shape{1, 1}, Shape{33, 48}, Shape{40, 2000}, Shape{19, 1025}})
      for (int threads : {1, 2, 3}) {
        const Tensor x = random_tensor(dtype, shape, -2, 2, 1),
                     bias = random_tensor(dtype, {shape[1]}, -1, 1, 2);
        const Tensor scale = random_tensor(dtype, {shape[0], 1}, 0, 1, 3);
        const auto y = run_kernel("FusedElementwise", {x, bias, scale},
                                  {{dtype, shape}, {DType::kFloat32, shape}},
                                  program_attributes(kBiasRelu), {threads, {}, threads == 2});
        const auto a = to_doubles(x), b = to_doubles(bias), c = to_doubles(scale);
        std::vector<double> sum, scaled;
        for (size_t i = 0; i < a.size(); ++i) {
          sum.push_back(a[i] + b[i % shape[1]]);
          scaled.push_back(std::max(sum[i], 0.0) * c[i / shape[1]]);
        }
        expect_near(scaled, y[0], tolerance(dtype), str("scaled ", x.spec()));
        expect_near(sum, y[1], tolerance(DType::kFloat32), str("sum ", x.spec()));
      }
}

TEST(FusedElementwise, OutputsMayLieOverAnyInputOfTheirSpec) {
  const Shape shape{37, 1000};
  for (DType dtype : {DType::kFloat32, DType::kFloat64, DType::kBFloat16}) {
    const Tensor w = random_tensor(dtype, shape, -1, 1, 1),
                 m = random_tensor(dtype, shape, -1, 1, 2);
    const Tensor g = random_tensor(dtype, shape, -1, 1, 3);
    const Tensor rate = random_tensor(dtype, {}, 0.1, 0.1),
                 decay = random_tensor(dtype, {}, 0.9, 0.9);
    const auto expected = momentum_reference(w, m, g, rate.item(), decay.item());
    for (int output = 0; output < 2; ++output)
      for (int input = 0; input < 3; ++input)
        for (int threads : {1, 2}) {
          const auto y =
              run_kernel("FusedElementwise", {w, m, g, rate, decay}, {w.spec(), w.spec()},
                         program_attributes(kMomentum),
                         {.threads = threads, .in_place_output = output, .in_place_input = input});
          expect_near(expected.w, y[0], tolerance(dtype),
                      str("w, output ", output, " over input ", input));
          expect_near(expected.m, y[1], tolerance(dtype),
                      str("m, output ", output, " over input ", input));
        }
  }
}

// Each of two outputs over the input that the other one is computed from.
TEST(FusedElementwise, TwoOutputsMaySwapPlacesWithTheirInputs) {
  const ElementwiseProgram program{
      .num_inputs = 2, .instructions = {{Scalar::kNeg, 0}, {Scalar::kExp, 1}}, .outputs = {2, 3}};
  const Attributes attributes = program_attributes(program);
  for (int64_t n : {5, 5000}) {
    Tensor a = random_tensor(DType::kFloat32, {n}, -1, 1, 1),
           b = random_tensor(DType::kFloat32, {n}, -1, 1, 2);
    const auto x = to_doubles(a), y = to_doubles(b);
    const KernelSpec spec{
        "FusedElementwise", {a.spec(), b.spec()}, {a.spec(), b.spec()}, attributes, Device{}, 1};
    const auto kernel = make_kernel(spec);
    const auto scratch = allocate_host_buffer(kernel->scratch_bytes());
    const void* inputs[] = {a.raw(), b.raw()};
    void* outputs[] = {b.raw(), a.raw()};
    kernel->run({inputs, outputs, scratch->data, StepInfo{}});
    for (int64_t i = 0; i < n; ++i) {
      ASSERT_EQ(b.data<float>()[i], -x[i]);
      ASSERT_NEAR(a.data<float>()[i], std::exp(y[i]), 1e-6);
    }
  }
}

TEST(FusedElementwise, AnInputThatIsAnOutputTooIsNotOverwritten) {
  const ElementwiseProgram program{
      .num_inputs = 2, .instructions = {{Scalar::kAdd, 0, 1}}, .outputs = {2, 0, 2}};
  const Attributes attributes = program_attributes(program);
  const TensorSpec s{DType::kFloat32, {3000}};
  const auto kernel = make_kernel({"FusedElementwise", {s, s}, {s, s, s}, attributes, Device{}, 1});
  EXPECT_FALSE(kernel->can_run_in_place(0, 0));
  EXPECT_TRUE(kernel->can_run_in_place(1, 0));
  EXPECT_TRUE(kernel->can_run_in_place(0, 1));
  const Tensor a = random_tensor(s.dtype, s.shape, -1, 1, 1),
               b = random_tensor(s.dtype, s.shape, -1, 1, 2);
  const auto y = run_kernel("FusedElementwise", {a, b}, {s, s, s}, attributes,
                            {.in_place_output = 1, .in_place_input = 0});
  expect_same_bytes(a, y[1], "copy of an input");
  expect_same_bytes(y[0], y[2], "one register as two outputs");
}

TEST(FusedElementwise, BroadcastInputsAreNotOverwritten) {
  const TensorSpec x{DType::kFloat32, {4, 8}}, row{DType::kFloat32, {1, 8}},
      half{DType::kBFloat16, {4, 8}};
  const Attributes attributes = program_attributes(kBiasRelu);
  const auto kernel =
      make_kernel({"FusedElementwise", {x, row, half}, {x, x}, attributes, Device{}, 1});
  EXPECT_TRUE(kernel->can_run_in_place(0, 0));
  EXPECT_FALSE(kernel->can_run_in_place(0, 1));
  EXPECT_FALSE(kernel->can_run_in_place(0, 2));
}

TEST(FusedElementwise, ComparesWideIntegersExactly) {
  const ElementwiseProgram program{.num_inputs = 3,
                                   .instructions = {{Scalar::kEqual, 0, 1}, {Scalar::kMul, 3, 2}},
                                   .outputs = {4}};
  const auto a = Tensor::from<int64_t>({16777216, 16777217}, {2}),
             b = Tensor::from<int64_t>({16777217, 16777217}, {2});
  const auto y = run_kernel("FusedElementwise", {a, b, Tensor::from<float>({3, 3}, {2})},
                            {{DType::kFloat32, {2}}}, program_attributes(program))[0];
  expect_near({0, 3}, y, 0, "mask");
}

// A hundred live registers: slots are neither mixed up nor outrun.
TEST(FusedElementwise, ManyRegistersLiveAtOnce) {
  ElementwiseProgram program{.num_inputs = 2};
  for (int i = 0; i < 100; ++i)
    program.instructions.push_back({Scalar::kAdd, i == 0 ? 0 : i + 1, 1});
  int64_t sum = 2;
  for (int i = 1; i < 100; ++i) {
    program.instructions.push_back({Scalar::kAdd, sum, 2 + i});
    sum = 2 + static_cast<int64_t>(program.instructions.size()) - 1;
  }
  program.outputs = {sum};
  const Tensor x = random_tensor(DType::kFloat64, {1500}, 0, 1, 1),
               one = Tensor::full(DType::kFloat64, {}, 1);
  const auto y =
      run_kernel("FusedElementwise", {x, one}, {x.spec()}, program_attributes(program))[0];
  std::vector<double> expected;
  for (double v : to_doubles(x)) expected.push_back(100 * v + 5050);
  expect_near(expected, y, 1e-12, "sum of sums");
}

TEST(MultiElementwise, UpdatesGroupsOfAnySizeInPlace) {
  const std::vector<Shape> shapes = {{3, 3, 7}, {0}, {1}, {100, 300}, {1024}, {5}, {20000}};
  std::vector<Tensor> inputs;
  std::vector<TensorSpec> outputs;
  const Tensor rate = Tensor::full(DType::kFloat32, {}, 0.1),
               decay = Tensor::full(DType::kFloat32, {}, 0.9);
  for (size_t g = 0; g < shapes.size(); ++g) {
    for (int i = 0; i < 3; ++i)
      inputs.push_back(random_tensor(DType::kFloat32, shapes[g], -1, 1, 3 * g + i));
    inputs.insert(inputs.end(), {rate, decay});
    outputs.insert(outputs.end(), 2, {DType::kFloat32, shapes[g]});
  }
  const Attributes attributes = program_attributes(kMomentum, static_cast<int64_t>(shapes.size()));
  for (int threads : {1, 2, 3})
    for (int in_place : {-1, 0, 1, 6}) {
      const int group = in_place / 2, input = in_place < 0 ? -1 : 5 * group + in_place % 2;
      const auto y = run_kernel("MultiElementwise", inputs, outputs, attributes,
                                {threads, {}, false, in_place, input});
      for (size_t g = 0; g < shapes.size(); ++g) {
        const auto expected =
            momentum_reference(inputs[5 * g], inputs[5 * g + 1], inputs[5 * g + 2], 0.1f, 0.9f);
        expect_near(expected.w, y[2 * g], 1e-6, str("w of group ", g));
        expect_near(expected.m, y[2 * g + 1], 1e-6, str("m of group ", g));
      }
    }
  const auto kernel = make_kernel({"MultiElementwise",
                                   {outputs[0], outputs[0], outputs[0], rate.spec(), decay.spec(),
                                    outputs[0], outputs[0], outputs[0], rate.spec(), decay.spec()},
                                   {outputs[0], outputs[0], outputs[0], outputs[0]},
                                   program_attributes(kMomentum, 2),
                                   Device{},
                                   1});
  EXPECT_FALSE(kernel->can_run_in_place(0, 5)) << "an input of another group";
}

}  // namespace
}  // namespace cohort::testing
