#include "core/kernels/cuda/program_source.h"

#include <gtest/gtest.h>

#include "core/kernels/common/elementwise_spec.h"
#include "tests/kernels/cpu/kernel_testing.h"
#include "tests/kernels/cuda/host_threads.h"
#include "tests/kernels/cuda/sample_programs.h"

ThreadIndex blockIdx, threadIdx;

// Sources made from programs, built for the host and run thread by thread, against the CPU's
// kernels.
namespace cohort::testing {
namespace {

void run_launch(HostProgram program, const std::vector<int64_t>& words, int64_t blocks) {
  for (blockIdx.x = 0; blockIdx.x < blocks; ++blockIdx.x)
    for (threadIdx.x = 0; threadIdx.x < cuda::kBlockThreads; ++threadIdx.x) program(words.data());
}

Tensor sample_input(const TensorSpec& spec, uint64_t stream) {
  return random_tensor(spec.dtype, spec.shape, is_floating(spec.dtype) ? 0.1 : 0,
                       spec.dtype == DType::kBool ? 2 : 9, stream);
}

std::vector<Tensor> run_source(const SampleProgram& sample, HostProgram program,
                               const std::vector<Tensor>& inputs) {
  const auto groups = static_cast<size_t>(sample.groups);
  const size_t width_in = sample.inputs.size() / groups, width_out = sample.outputs.size() / groups;
  const auto source = cuda::program_source(
      sample.program, sample.compute,
      {sample.inputs.end() - static_cast<int64_t>(width_in), sample.inputs.end()},
      {sample.outputs.end() - static_cast<int64_t>(width_out), sample.outputs.end()});
  std::vector<Tensor> outputs;
  std::vector<const void*> from;
  std::vector<void*> to;
  for (const Tensor& input : inputs) from.push_back(input.raw());
  for (const TensorSpec& spec : sample.outputs) {
    outputs.emplace_back(spec.dtype, spec.shape);
    std::memset(outputs.back().raw(), 0xCD, outputs.back().bytes());
    to.push_back(outputs.back().raw());
  }
  std::vector<cuda::ProgramGroup> memory;
  for (size_t g = 0; g < groups; ++g)
    memory.push_back({sample.outputs[g * width_out].shape.num_elements(),
                      std::span(from).subspan(g * width_in, width_in),
                      std::span(to).subspan(g * width_out, width_out)});
  const auto most = static_cast<size_t>(source.max_groups);
  for (size_t begin = 0; begin < groups; begin += most) {
    std::vector<int64_t> words(source.words());
    const int64_t blocks =
        cuda::write_groups(std::span(memory).subspan(begin, std::min(most, groups - begin)), words);
    run_launch(program, words, blocks);
  }
  return outputs;
}

TEST(ProgramSource, ComputesWhatTheCpuComputes) {
  const auto samples = sample_programs();
  ASSERT_EQ(kHostPrograms.size(), samples.size());
  for (size_t s = 0; s < samples.size(); ++s) {
    const SampleProgram& sample = samples[s];
    std::vector<Tensor> inputs;
    for (size_t i = 0; i < sample.inputs.size(); ++i)
      inputs.push_back(sample_input(sample.inputs[i], i));
    const Attributes attributes = {{"program", sample.program.encode()}, {"groups", sample.groups}};
    ASSERT_EQ(compute_dtype(sample.program,
                            {"MultiElementwise", sample.inputs, sample.outputs, attributes}),
              sample.compute)
        << sample.name;
    const auto want = run_kernel("MultiElementwise", inputs, sample.outputs, attributes);
    const auto got = run_source(sample, kHostPrograms[s], inputs);
    for (size_t i = 0; i < want.size(); ++i)
      expect_near(to_doubles(want[i]), got[i], tolerance(want[i].dtype()),
                  str(sample.name, ", output ", i));
  }
}

TEST(ProgramSource, NeverHasMoreParametersThanAKernelMay) {
  for (const SampleProgram& sample : sample_programs()) {
    const auto groups = static_cast<size_t>(sample.groups);
    const auto source = cuda::program_source(
        sample.program, sample.compute,
        {sample.inputs.begin(), sample.inputs.begin() + sample.program.num_inputs},
        {sample.outputs.begin(),
         sample.outputs.begin() + static_cast<int64_t>(sample.outputs.size() / groups)});
    EXPECT_GE(source.max_groups, 1);
    EXPECT_LE(source.words() * sizeof(int64_t), 4096u);
  }
}

TEST(ProgramSource, OfGroupsThatDifferInSizeAloneIsOne) {
  const ElementwiseProgram negate{
      .num_inputs = 1, .instructions = {{Scalar::kNeg}}, .outputs = {1}};
  const auto of = [&](const Shape& shape) {
    const std::vector<TensorSpec> specs = {{DType::kFloat32, shape}};
    return cuda::program_source(negate, DType::kFloat32, specs, specs).text;
  };
  EXPECT_EQ(of({5}), of({7, 2}));
}

TEST(ProgramSource, NamesAnOpThatTheTypeHasNot) {
  const ElementwiseProgram root{.num_inputs = 1, .instructions = {{Scalar::kSqrt}}, .outputs = {1}};
  const std::vector<TensorSpec> specs = {{DType::kInt32, {4}}};
  try {
    cuda::program_source(root, DType::kInt64, specs, specs);
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kUnimplemented);
    EXPECT_EQ(error.message(), "Sqrt does not support int32");
  }
}

}  // namespace
}  // namespace cohort::testing
