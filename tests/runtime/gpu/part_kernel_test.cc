#include "core/runtime/part_kernel.h"

#include <vector>

#include <gtest/gtest.h>

#include "tests/runtime/gpu/two_gpus.h"

// On memory of the host, which streams of simulated GPUs reach as well.
namespace cohort {
namespace {

TEST(PartKernel, HandsItsWorkToTheStream) {
  ASSERT_EQ(testing::make_two_gpus(128 << 20), "");
  constexpr Device kGpu{DeviceType::kGpu, 0};
  DeviceBackend& backend = device_backend(DeviceType::kGpu);
  const Attributes second_half = {{"part", std::vector<int64_t>{1, 2}}};
  const Tensor x = Tensor::full(DType::kFloat32, {128}, 7);
  Tensor y = Tensor::zeros(DType::kFloat32, {128});
  const auto kernel = make_part_kernel({"Neg", {x.spec()}, {y.spec()}, second_half, kGpu, 1});

  const auto stream = backend.make_stream(kGpu);
  const auto scratch = backend.allocate(kGpu, kernel->scratch_bytes(), "the test");
  const std::vector<const void*> inputs = {x.raw()};
  const std::vector<void*> outputs = {y.raw()};
  const StepInfo step;
  KernelContext context{inputs, outputs, scratch->data, step};
  context.stream = stream.get();
  kernel->run(context);
  EXPECT_EQ(y.values<float>()[64], 0.0f) << "done before the stream came to it";
  stream->synchronize();
  EXPECT_EQ(y.values<float>()[63], 0.0f) << "in the first half";
  EXPECT_EQ(y.values<float>()[64], -7.0f);
  EXPECT_EQ(y.values<float>()[127], -7.0f);
}

}  // namespace
}  // namespace cohort
