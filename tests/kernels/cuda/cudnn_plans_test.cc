#include "core/kernels/cuda/cudnn_plans.h"

#include <cstdlib>
#include <dlfcn.h>

#include <gtest/gtest.h>

#include "core/kernels/cuda/cudnn_graph.h"

// What cuDNN plans for what kernels ask of it, on a card that is described to it: its refusals are
// seen without a card. Whether a plan computes the right thing is seen on one only.
namespace cohort::cuda {
namespace {

// An H100 as CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION has it.
constexpr std::string_view kH100 = R"({
  "deviceName": "NVIDIA H100 80GB HBM3", "deviceVer": 900, "driverVer": 13000,
  "cudaDeviceId": 0, "pciDeviceId": 0, "isTccDriver": 0, "supportCoopLaunch": 1,
  "multiProcessorCount": 132, "warpSize": 32,
  "maxGridSize": [2147483647, 65535, 65535], "maxBlockSize": [1024, 1024, 64],
  "maxThreadsPerBlock": 1024, "maxThreadsPerSM": 2048, "maxCtasPerSM": 32,
  "regsPerBlock": 65536, "maxRegistersPerSM": 65536,
  "maxSharedMemoryPerBlock": 49152, "maxSharedMemoryPerBlockOptin": 232448,
  "reservedSharedMemoryPerBlock": 1024, "l2CacheSize": 52428800, "totalGlobalMem": 84942979072,
  "smClockRateKHz": 1980000, "memClockRateKHz": 2619000
})";

class CudnnPlans : public ::testing::Test {
 protected:
  void SetUp() override {
    constexpr size_t kFirst = 91100;
    if (cudnnGetVersion() < kFirst)
      GTEST_SKIP() << "cuDNN " << cudnnGetVersion() << " cannot plan for a card that is described"
                   << " to it; " << kFirst << " can";
    ASSERT_NE(dlopen(std::getenv("ABSENT_DRIVER"), RTLD_NOW), nullptr) << dlerror();
    h100_.capability = 9;
    h100_.properties.emplace(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
    h100_.properties
        ->set(CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
              static_cast<int64_t>(kH100.size()), kH100.data())
        .finish();
  }

  // Why there is no plan; empty where there is one.
  std::string refusal(const ConvProblem& problem) {
    return refusal_of([&] { plan_conv(problem, h100_); });
  }
  std::string refusal(const AttentionProblem& problem) {
    return refusal_of([&] { plan_attention(problem, h100_); });
  }
  std::string refusal(const RowNormProblem& problem) {
    return refusal_of([&] { plan_row_norm(problem, h100_); });
  }
  size_t workspace_bytes(const AttentionProblem& problem) {
    return plan_attention(problem, h100_)->workspace_bytes();
  }

 private:
  template <typename F>
  static std::string refusal_of(F plan) {
    try {
      plan();
      return "";
    } catch (const Error& error) {
      return error.message();
    }
  }

  Cudnn h100_;
};

// --- Convolutions

struct Precision {
  DType dtype;
  bool tf32 = false;
};
constexpr Precision kPrecisions[] = {
    {DType::kFloat32}, {DType::kFloat32, true}, {DType::kBFloat16}, {DType::kFloat16}};

using List = std::vector<int64_t>;

// Of NHWC images, with an HWIO filter.
struct Convolution {
  const char* name;
  Shape x, filter;
  List strides = {1, 1}, pads = {0, 0, 0, 0}, dilations = {1, 1};
  int64_t groups = 1;

  ConvProblem problem(ConvResult result, const Precision& precision) const {
    const auto extent = [&](int i) {
      const int64_t span = (filter[i] - 1) * dilations[i] + 1;
      return (x[i + 1] + pads[2 * i] + pads[2 * i + 1] - span) / strides[i] + 1;
    };
    const ConvSizes sizes(
        x, filter, {x[0], extent(0), extent(1), filter[3]},
        {{"strides", strides}, {"dilations", dilations}, {"pads", pads}, {"groups", groups}});
    const DType dtype = precision.dtype;
    return ConvTask(sizes, result, {dtype, dtype, dtype}, precision.tf32).problem;
  }
};

const Convolution kConvolutions[] = {
    {"resnet50's first", {32, 224, 224, 3}, {7, 7, 3, 64}, {2, 2}, {3, 3, 3, 3}},
    {"1x1", {32, 56, 56, 64}, {1, 1, 64, 256}},
    {"1x1 of stride 2", {32, 56, 56, 256}, {1, 1, 256, 512}, {2, 2}},
    {"3x3", {32, 56, 56, 64}, {3, 3, 64, 64}, {1, 1}, {1, 1, 1, 1}},
    {"3x3 of stride 2", {32, 56, 56, 128}, {3, 3, 128, 128}, {2, 2}, {1, 1, 1, 1}},
    {"resnet20's first", {128, 32, 32, 3}, {3, 3, 3, 16}, {1, 1}, {1, 1, 1, 1}},
    {"of one channel", {64, 28, 28, 1}, {3, 3, 1, 32}},
    {"of odd sizes", {1, 7, 9, 5}, {3, 2, 5, 7}, {2, 3}, {0, 2, 1, 0}},
    {"dilated", {2, 9, 9, 4}, {3, 3, 4, 6}, {1, 1}, {2, 2, 2, 2}, {2, 2}},
    {"of groups", {8, 28, 28, 64}, {3, 3, 16, 64}, {1, 1}, {1, 1, 1, 1}, {1, 1}, 4},
};

constexpr ConvResult kResults[] = {ConvResult::kY, ConvResult::kX, ConvResult::kFilter};

std::string in_words(const Convolution& convolution, const Precision& precision) {
  return str(convolution.name, ", ", precision.dtype, precision.tf32 ? ", TF32" : "");
}

TEST_F(CudnnPlans, AreThereForConvolutionsAndTheirGradients) {
  for (const Convolution& c : kConvolutions)
    for (const Precision& precision : kPrecisions)
      for (const ConvResult result : kResults)
        EXPECT_EQ(refusal(c.problem(result, precision)), "")
            << in_words(c, precision) << ", result " << static_cast<int>(result);
}

TEST_F(CudnnPlans, AreThereForConvolutionsWithABias) {
  for (const Convolution& c : kConvolutions)
    for (const Precision& precision : kPrecisions) {
      ConvProblem problem = c.problem(ConvResult::kY, precision);
      problem.bias = true;
      EXPECT_EQ(refusal(problem), "") << in_words(c, precision);
    }
}

// By engines that are compiled, which takes a second or two each.
TEST_F(CudnnPlans, AreThereForDepthwiseConvolutions) {
  const Convolution depthwise = {
      "depthwise", {8, 28, 28, 32}, {3, 3, 1, 32}, {1, 1}, {1, 1, 1, 1}, {1, 1}, 32};
  for (const ConvResult result : kResults)
    EXPECT_EQ(refusal(depthwise.problem(result, {DType::kBFloat16})), "")
        << "result " << static_cast<int>(result);
}

// --- Attention

AttentionProblem attention(DType dtype, int64_t queries, int64_t keys, int64_t size, bool causal,
                           bool gradient) {
  constexpr int64_t kBatch = 8, kHeads = 12;
  const TensorSpec q{dtype, {kBatch, queries, kHeads, size}},
      k{dtype, {kBatch, keys, kHeads, size}}, lse{DType::kFloat32, {kBatch, kHeads, queries}};
  const Attributes attributes = {{"causal", causal}, {"scale", 0.125}};
  if (gradient)
    return AttentionProblem({"AttentionGrad", {q, q, k, k, q, lse}, {q, k, k}, attributes});
  return AttentionProblem({"Attention", {q, k, k}, {q, lse}, attributes});
}

TEST_F(CudnnPlans, AreThereForAttentionAndItsGradient) {
  constexpr bool kCausal = true;
  for (const bool gradient : {false, true}) {
    for (const AttentionProblem& problem :
         {attention(DType::kBFloat16, 1024, 1024, 64, kCausal, gradient),
          attention(DType::kFloat16, 64, 192, 128, kCausal, gradient),
          attention(DType::kBFloat16, 65, 300, 8, !kCausal, gradient),
          attention(DType::kBFloat16, 1024, 1024, 136, kCausal, gradient),
          attention(DType::kFloat16, 512, 1024, 256, !kCausal, gradient)}) {
      ASSERT_TRUE(problem.is_for_libraries());
      EXPECT_EQ(refusal(problem), "") << (gradient ? "gradient, " : "") << problem.dtype << ", "
                                      << problem.queries << " queries";
    }
  }
}

// Of all 96 heads the scores would be 13 GB.
TEST_F(CudnnPlans, KeepScoresOfAGibibyteForTheGradientOfAttention) {
  EXPECT_LT(workspace_bytes(attention(DType::kBFloat16, 8192, 8192, 64, true, true)),
            size_t{1} << 30);
}

// --- Normalisations

// Whose outputs tell a plan nothing that its inputs do not.
RowNormProblem row_norm(std::string_view op, DType dtype, DType parameter, const Shape& shape) {
  const TensorSpec x{dtype, shape}, gamma{parameter, {shape.dim(-1)}};
  const Attributes attributes = {{"epsilon", 1e-5}};
  if (op.ends_with("Grad")) return RowNormProblem({op, {x, x, gamma}, {}, attributes});
  return RowNormProblem({op, {x, gamma}, {}, attributes});
}

TEST_F(CudnnPlans, AreThereForNormalisationsOfRowsAndTheirGradients) {
  for (const char* op : {"LayerNorm", "LayerNormGrad", "RmsNorm", "RmsNormGrad"})
    EXPECT_EQ(refusal(row_norm(op, DType::kBFloat16, DType::kFloat32, {8, 1024, 768})), "") << op;
  for (const char* op : {"LayerNorm", "LayerNormGrad"})
    EXPECT_EQ(refusal(row_norm(op, DType::kFloat16, DType::kFloat16, {7, 5})), "") << op;
}

}  // namespace
}  // namespace cohort::cuda
