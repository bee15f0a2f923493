#include <climits>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "core/device/device.h"

// Names of devices, and the host's processor as several.
namespace cohort {
namespace {

// Fails the test unless `act` throws this code and each of `texts`.
template <typename F>
void expect_error(const F& act, Code code, const std::vector<std::string>& texts) {
  try {
    act();
    ADD_FAILURE() << "nothing was thrown where \"" << texts[0] << "\" was expected";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    for (const std::string& text : texts)
      EXPECT_NE(error.message().find(text), std::string::npos) << error.message();
  }
}

TEST(ParseDevice, TakesTypesInAnyCaseAndNumbers) {
  EXPECT_EQ(parse_device("cpu:1"), (Device{DeviceType::kCpu, 1}));
  EXPECT_EQ(parse_device("CPU:0"), (Device{DeviceType::kCpu, 0}));
  EXPECT_EQ(parse_device("Gpu:12"), (Device{DeviceType::kGpu, 12}));
  EXPECT_EQ(parse_device("gpu"), (Device{DeviceType::kGpu, 0}));
  EXPECT_EQ(parse_device("cpu:2147483647"), (Device{DeviceType::kCpu, INT_MAX}));
}

TEST(ParseDevice, RefusesAllElseWithTheTextAndTheForm) {
  for (const char* text : {"",
                           ":",
                           ":0",
                           "tpu:0",
                           "cpus:0",
                           "cpu:",
                           "cpu:x",
                           "cpu:0x",
                           "cpu:1.5",
                           "cpu: 1",
                           " cpu:1",
                           "cpu:1 ",
                           "cpu:+1",
                           "cpu:-1",
                           "cpu:-0x",
                           "cpu:1:2",
                           "cpu-1",
                           "cpu1",
                           "cpu:2147483648",
                           "gpu:99999999999999999999",
                           "gpu:-2147483649"})
    expect_error([&] { parse_device(text); }, Code::kInvalidArgument,
                 {str("\"", text, "\""), "cpu:N or gpu:N"});
}

class LogicalCpus : public ::testing::Test {
 protected:
  ~LogicalCpus() override { set_logical_cpus(1); }

  static int cpus() {
    int count = 0;
    for (const Device device : list_devices()) count += device.type == DeviceType::kCpu;
    return count;
  }
};

TEST_F(LogicalCpus, AreAsManyAsAskedForWithTheThreadsThatWereAskedFor) {
  set_logical_cpus(3, 1);
  EXPECT_EQ(cpus(), 3);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(device_threads({DeviceType::kCpu, i}), 1);
}

TEST_F(LogicalCpus, HaveAThreadEachWhereThereAreFewerCores) {
  set_logical_cpus(4096);
  EXPECT_EQ(cpus(), 4096);
  EXPECT_EQ(device_threads({DeviceType::kCpu, 4095}), 1);
}

TEST_F(LogicalCpus, CannotBeNoneNegativeOrTooMany) {
  set_logical_cpus(2, 1);
  for (const int count : {0, -1, INT_MIN, 4097, INT_MAX})
    expect_error([&] { set_logical_cpus(count); }, Code::kInvalidArgument,
                 {"1 to 4096", str("got ", count)});
  for (const int threads : {-1, INT_MIN})
    expect_error([&] { set_logical_cpus(2, threads); }, Code::kInvalidArgument,
                 {"threads", str("got ", threads)});
  EXPECT_EQ(cpus(), 2) << "what was refused changed something";
  EXPECT_EQ(device_threads({DeviceType::kCpu, 0}), 1);
}

TEST_F(LogicalCpus, BeyondTheLastAreNotFound) {
  set_logical_cpus(2, 1);
  for (const int index : {2, INT_MAX, -1})
    expect_error(
        [&] {
          device_threads({DeviceType::kCpu, index});
        },
        Code::kNotFound,
        {str("there is no device cpu:", index), "cpu:0, cpu:1", "set_logical_cpus"});
}

TEST_F(LogicalCpus, OfWhichThereAreManyAreNotAllListed) {
  set_logical_cpus(4096);
  expect_error(
      [] {
        device_threads({DeviceType::kCpu, 4096});
      },
      Code::kNotFound, {"this process has cpu:0, ", "cpu:7 and ", " more"});
}

TEST_F(LogicalCpus, ThatAreTakenAwayKeepWhatLiesOnThem) {
  set_logical_cpus(2, 1);
  const Device second = parse_device("cpu:1");
  Tensor tensor = allocate_tensor(second, {DType::kFloat32, {2}}, "a test");
  set_logical_cpus(1, 1);
  tensor.data<float>()[1] = 7;
  EXPECT_EQ(tensor.values<float>()[1], 7);
  expect_error([&] { device_threads(second); }, Code::kNotFound, {"cpu:1", "has cpu:0"});
}

}  // namespace
}  // namespace cohort
