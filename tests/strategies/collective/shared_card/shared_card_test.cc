#include <cmath>

#include <gtest/gtest.h>

#include "core/device/simulated/simulated_gpus.h"
#include "strategies/collective/shared_card/shared_card_library.h"
#include "tests/strategies/collective/nccl/device_ranks.h"
#include "tests/strategies/collective/nccl/on_device.h"

namespace cohort {
namespace {

using testing::DeviceRanks;
using testing::OnDevice;
using testing::run_call;
using testing::segments_at;

using std::chrono::milliseconds;

constexpr int kMaxRanks = 5;
constexpr auto kLong = milliseconds(20'000);

// On simulated GPUs, which the first call makes.
DeviceRanks make_group(int size, std::optional<milliseconds> limit = kLong) {
  static const bool kMade = [] {
    simulated::use_simulated_gpus(kMaxRanks);
    return true;
  }();
  EXPECT_TRUE(kMade);
  SharedCardLibrary library(size);
  return DeviceRanks(size, library, limit);
}

// What rank `rank` gives: the values of all segments, one behind the other.
Tensor values_of(int rank, int64_t count, DType dtype) {
  Tensor t(DType::kFloat64, {count});
  for (int64_t i = 0; i < count; ++i)
    t.data<double>()[i] = std::sin(static_cast<double>(3 * i + rank));
  return t.cast(dtype);
}

std::string bits_of(const Tensor& t) { return {static_cast<const char*>(t.raw()), t.bytes()}; }

TEST(SharedCard, AddsUpWhatAllRanksHaveInRankOrder) {
  for (const DType dtype : {DType::kFloat32, DType::kFloat64, DType::kBFloat16, DType::kFloat16})
    for (const int size : {2, 3, kMaxRanks}) {
      SCOPED_TRACE(str(dtype, " of ", size, " ranks"));
      DeviceRanks group = make_group(size);
      for (const std::vector<int64_t>& counts :
           {std::vector<int64_t>{1000}, {1, 0, 63, 64, 65}, {0}, {4099, 7}}) {
        int64_t total = 0;
        for (const int64_t count : counts) total += count;
        Tensor sums(DType::kFloat64, {total});
        for (int64_t i = 0; i < total; ++i) sums.data<double>()[i] = 0;
        for (int r = 0; r < size; ++r) {
          const Tensor own = values_of(r, total, dtype).cast(DType::kFloat64);
          for (int64_t i = 0; i < total; ++i) sums.data<double>()[i] += own.data<double>()[i];
        }
        for (const bool in_place : {true, false}) {
          std::vector<Tensor> results(static_cast<size_t>(size));
          const auto errors = group.run([&](int r, DeviceCollectives& device, Stream& stream) {
            OnDevice source(stream.device(), values_of(r, total, dtype)),
                target(stream.device(), Tensor::zeros(dtype, {total}));
            OnDevice& result = in_place ? source : target;
            const auto segments = segments_at(source.raw(), result.raw(), counts, dtype);
            run_call(device, AllReduceCall{segments, dtype, ReduceOp::kSum}, stream);
            results[static_cast<size_t>(r)] = result.read();
          });
          for (const std::string& error : errors) EXPECT_EQ(error, "");
          for (const Tensor& result : results)
            EXPECT_TRUE(bits_of(result) == bits_of(results[0])) << "ranks differ";
          const Tensor found = results[0].cast(DType::kFloat64);
          const double tolerance = dtype_size(dtype) == 2 ? 0.02 : 1e-5;
          for (int64_t i = 0; i < total; ++i)
            ASSERT_NEAR(found.data<double>()[i], sums.data<double>()[i], tolerance) << i;
        }
      }
    }
}

TEST(SharedCard, ComesBehindWhatTheStreamsWereHanded) {
  DeviceRanks group = make_group(2);
  const auto errors = group.run([&](int, DeviceCollectives& device, Stream& stream) {
    const Tensor ones = Tensor::full(DType::kFloat32, {100}, 1);
    OnDevice memory(stream.device(), Tensor::zeros(DType::kFloat32, {100}));
    for (int round = 0; round < 20; ++round) {
      stream.copy_from_host(ones.raw(), memory.raw(), ones.bytes());
      const Segment segment{memory.raw(), memory.raw(), 100};
      device.start(AllReduceCall{{&segment, 1}, DType::kFloat32, ReduceOp::kSum}, stream, &memory);
      stream.synchronize();
      const Tensor found = memory.read();
      for (const float x : found.values<float>()) ASSERT_EQ(x, 2) << "round " << round;
    }
  });
  for (const std::string& error : errors) EXPECT_EQ(error, "");
}

TEST(SharedCard, LeavesOtherCallsToTheHost) {
  DeviceRanks group = make_group(2);
  const DeviceCollectives& device = *group.communicator(0).on_device();
  EXPECT_FALSE(device.can_run(AllReduceCall{{}, DType::kFloat32, ReduceOp::kMax}));
  EXPECT_FALSE(device.can_run(AllReduceCall{{}, DType::kInt64, ReduceOp::kSum}));
  EXPECT_FALSE(device.can_run(BarrierCall{}));
}

// Often, because a rank that left at once would take away what the others still look at.
TEST(SharedCard, CallsThatDifferAreAnErrorOnAllRanks) {
  for (int time = 0; time < 50; ++time) {
    DeviceRanks group = make_group(3);
    const auto errors = group.run([&](int r, DeviceCollectives& device, Stream& stream) {
      OnDevice memory(stream.device(), Tensor::zeros(DType::kFloat32, {8}));
      const std::vector<Segment> segments{{memory.raw(), memory.raw(), r == 1 ? 7 : 8}};
      device.start(AllReduceCall{segments, DType::kFloat32, ReduceOp::kSum}, stream, &memory);
    });
    for (const std::string& error : errors)
      for (const char* part : {"INVALID_ARGUMENT", "rank 0", "8 elements", "rank 1", "7 elements"})
        ASSERT_NE(error.find(part), std::string::npos) << error;
  }
}

TEST(SharedCard, ARankThatDoesNotComeIsAnErrorAfterTheLimit) {
  DeviceRanks group = make_group(2, milliseconds(20));
  const auto errors = group.run([&](int r, DeviceCollectives& device, Stream& stream) {
    if (r == 1) return;
    device.start(AllReduceCall{{}, DType::kFloat32, ReduceOp::kSum}, stream, &device);
  });
  EXPECT_NE(errors[0].find("DEADLINE_EXCEEDED"), std::string::npos) << errors[0];
}

TEST(SharedCard, AbortFreesWhoWaits) {
  DeviceRanks group = make_group(2, std::nullopt);
  const auto errors = group.run([&](int r, DeviceCollectives& device, Stream& stream) {
    if (r == 1) return group.communicator(0).abort(Error(Code::kAborted, "enough"));
    device.start(AllReduceCall{{}, DType::kFloat32, ReduceOp::kSum}, stream, &device);
  });
  EXPECT_NE(errors[0].find("enough"), std::string::npos) << errors[0];
}

}  // namespace
}  // namespace cohort
