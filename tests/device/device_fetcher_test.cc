#include "core/device/device_fetcher.h"

#include <cstring>
#include <numeric>

#include <gtest/gtest.h>

#include "core/device/simulated/simulated_gpus.h"

namespace cohort {
namespace {

constexpr Device kGpu{DeviceType::kGpu, 0}, kOther{DeviceType::kGpu, 1};
constexpr size_t kLimit = 64 << 20;

class DeviceFetcherTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { simulated::use_simulated_gpus(2, kLimit); }

  // What the device has of it.
  static Tensor read(const Tensor& tensor) {
    Tensor copy(tensor.dtype(), tensor.shape());
    const void* source = fetched(tensor, kGpu);
    if (source == nullptr) throw std::runtime_error("it was not fetched");
    device_backend(kGpu.type).copy_to_host(kGpu, source, copy.raw(), copy.bytes());
    return copy;
  }
  static void expect_fetched(const Tensor& tensor) {
    const Tensor copy = read(tensor);
    EXPECT_EQ(std::memcmp(copy.raw(), tensor.raw(), copy.bytes()), 0);
  }
};

Tensor ramp(int64_t rows, int32_t first) {
  Tensor t(DType::kInt32, {rows, 5});
  std::iota(t.data<int32_t>(), t.data<int32_t>() + t.num_elements(), first);
  return t;
}

TEST_F(DeviceFetcherTest, CopiesTensorsOfAnySizeAndLeavesThemWhereTheyAre) {
  DeviceFetcher fetcher(kGpu);
  for (int batch = 1; batch <= 3; ++batch) {
    const std::vector<Tensor> tensors = {ramp(3, batch), ramp(500'000 * batch, batch), ramp(0, 0),
                                         ramp(700'000, -batch)};
    const auto found = fetcher.fetch(tensors);
    ASSERT_EQ(found.size(), tensors.size());
    for (size_t i = 0; i < found.size(); ++i) {
      EXPECT_EQ(found[i].spec(), tensors[i].spec());
      EXPECT_EQ(found[i].raw(), tensors[i].raw());
      EXPECT_EQ(fetched(tensors[i], kGpu), nullptr) << "the other handle knows nothing of it";
      if (tensors[i].bytes() > 0) expect_fetched(found[i]);
    }
    EXPECT_EQ(fetched(found[0], kOther), nullptr);
  }
}

TEST_F(DeviceFetcherTest, ViewsHaveTheirPartOfTheCopy) {
  DeviceFetcher fetcher(kGpu);
  const Tensor whole = ramp(10, 0), part = whole.slice_rows(2, 8);
  const Tensor found = fetcher.fetch({part})[0];
  expect_fetched(found);
  expect_fetched(found.slice_rows(1, 4));
  expect_fetched(found.reshape({3, 10}));
  EXPECT_EQ(found.slice_rows(1, 4).raw(), whole.slice_rows(3, 6).raw());
  const Tensor around(DType::kInt32, whole.shape(), found.buffer());
  EXPECT_EQ(fetched(around, kGpu), nullptr) << "the device has a part of it only";
}

TEST_F(DeviceFetcherTest, CopiesGoWithTheirTensors) {
  DeviceFetcher fetcher(kGpu);
  const int64_t rows = kLimit / 2 / (5 * sizeof(int32_t));  // two of them do not fit
  Tensor host = ramp(rows, 0);
  const std::weak_ptr<Buffer> memory = host.buffer();
  for (int i = 0; i < 3; ++i) {
    Tensor view = fetcher.fetch({host})[0].slice_rows(rows - 1, rows);
    EXPECT_EQ(read(view).data<int32_t>()[4], 5 * rows - 1);
    EXPECT_THROW(fetcher.fetch({ramp(rows + 20, 0)}), Error) << "the view keeps the copy";
  }
  host = Tensor();
  EXPECT_TRUE(memory.expired());
}

}  // namespace
}  // namespace cohort
