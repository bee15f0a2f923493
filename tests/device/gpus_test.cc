#include <algorithm>

#include <gtest/gtest.h>

#include "core/device/device.h"
#include "tests/testing/error_of.h"

// What every build says of GPUs; where there are none, that they are missing and why.
namespace cohort {
namespace {

using testing::error_of;

bool mentions(const Error& error, const std::string& text) {
  return error.message().find(text) != std::string::npos;
}

TEST(Gpus, AreListedBehindTheCpus) {
  const auto devices = list_devices();
  ASSERT_FALSE(devices.empty());
  EXPECT_EQ(devices[0], Device{});
  EXPECT_TRUE(std::is_sorted(devices.begin(), devices.end()));
}

class MissingGpus : public ::testing::Test {
 protected:
  void SetUp() override {
    if (missing_gpu_reason().empty()) GTEST_SKIP() << "this process has a GPU";
  }
};

TEST_F(MissingGpus, AreNotListed) {
  for (const Device device : list_devices()) EXPECT_EQ(device.type, DeviceType::kCpu);
}

TEST_F(MissingGpus, AreNotFoundForAReason) {
  const Error error = error_of([] { device_threads({DeviceType::kGpu, 0}); });
  EXPECT_EQ(error.code(), Code::kNotFound);
  EXPECT_TRUE(mentions(error, "there is no device gpu:0")) << error.what();
  EXPECT_TRUE(mentions(error, missing_gpu_reason())) << error.what();
}

TEST_F(MissingGpus, CannotBeDivided) {
  const Error error = error_of([] { set_logical_gpus({{.card = 0}, {.card = 0}}); });
  EXPECT_EQ(error.code(), Code::kNotFound);
  EXPECT_TRUE(mentions(error, missing_gpu_reason())) << error.what();
}

TEST_F(MissingGpus, HaveNoMemory) {
  const Error error = error_of([] {
    allocate_tensor({DeviceType::kGpu, 0}, {DType::kFloat32, {4}}, "variable \"w\"");
  });
  EXPECT_TRUE(mentions(error, missing_gpu_reason())) << error.what();
}

}  // namespace
}  // namespace cohort
