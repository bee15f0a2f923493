#include <cmath>
#include <thread>

#include <gtest/gtest.h>

#include "core/device/simulated/simulated_gpus.h"
#include "strategies/collective/nccl/device_group.h"
#include "strategies/collective/shared_card/shared_card_library.h"
#include "tests/strategies/collective/nccl/on_device.h"

namespace cohort {
namespace {

using testing::OnDevice;

using std::chrono::milliseconds;

constexpr int kMaxRanks = 5;
constexpr auto kLong = milliseconds(20'000);

// Ranks whose communicators have the collectives, each with a stream of its device.
class Group {
 public:
  explicit Group(int size, std::optional<milliseconds> limit = kLong) {
    static const bool kMade = [] {
      simulated::use_simulated_gpus(kMaxRanks);
      return true;
    }();
    EXPECT_TRUE(kMade);
    SharedCardLibrary library(size);
    std::vector<Device> devices;
    for (int r = 0; r < size; ++r) {
      devices.push_back({DeviceType::kGpu, r});
      streams.push_back(device_backend(DeviceType::kGpu).make_stream(devices.back()));
    }
    DeviceGroup group =
        add_device_collectives(make_in_process_communicators(size),
                               {.library = &library, .devices = devices, .limit = limit});
    EXPECT_EQ(group.missing, "");
    communicators = std::move(group.communicators);
  }

  // Runs `rank` on a thread for each; the errors, by rank.
  std::vector<std::string> run(const std::function<void(int, DeviceCollectives&, Stream&)>& rank) {
    std::vector<std::string> errors(streams.size());
    std::vector<std::thread> threads;
    for (size_t r = 0; r < streams.size(); ++r)
      threads.emplace_back([&, r] {
        try {
          rank(static_cast<int>(r), *communicators[r]->on_device(), *streams[r]);
        } catch (const Error& error) {
          errors[r] = error.what();
        }
      });
    for (std::thread& thread : threads) thread.join();
    return errors;
  }

  std::vector<std::unique_ptr<Communicator>> communicators;
  std::vector<std::unique_ptr<Stream>> streams;
};

// What rank `rank` gives: the values of all segments, one behind the other.
Tensor values_of(int rank, int64_t count, DType dtype) {
  Tensor t(DType::kFloat64, {count});
  for (int64_t i = 0; i < count; ++i)
    t.data<double>()[i] = std::sin(static_cast<double>(3 * i + rank));
  return t.cast(dtype);
}

// Segments of these counts, one behind the other at `source` and `target`.
std::vector<Segment> segments_at(char* source, char* target, const std::vector<int64_t>& counts,
                                 DType dtype) {
  std::vector<Segment> segments;
  for (const int64_t count : counts) {
    segments.push_back({source, target, count});
    source += count * static_cast<int64_t>(dtype_size(dtype));
    target += count * static_cast<int64_t>(dtype_size(dtype));
  }
  return segments;
}

std::string bits_of(const Tensor& t) { return {static_cast<const char*>(t.raw()), t.bytes()}; }

TEST(SharedCard, AddsUpWhatAllRanksHaveInRankOrder) {
  for (const DType dtype : {DType::kFloat32, DType::kFloat64, DType::kBFloat16, DType::kFloat16})
    for (const int size : {2, 3, kMaxRanks}) {
      SCOPED_TRACE(str(dtype, " of ", size, " ranks"));
      Group group(size);
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
            const Call call = AllReduceCall{segments, dtype, ReduceOp::kSum};
            ASSERT_TRUE(device.can_run(call));
            device.start(call, stream, &call);
            device.wait(&call, stream);
            stream.synchronize();
            device.check();
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
  Group group(2);
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
  Group group(2);
  const DeviceCollectives& device = *group.communicators[0]->on_device();
  EXPECT_FALSE(device.can_run(AllReduceCall{{}, DType::kFloat32, ReduceOp::kMax}));
  EXPECT_FALSE(device.can_run(AllReduceCall{{}, DType::kInt64, ReduceOp::kSum}));
  EXPECT_FALSE(device.can_run(BarrierCall{}));
}

// Often, because a rank that left at once would take away what the others still look at.
TEST(SharedCard, CallsThatDifferAreAnErrorOnAllRanks) {
  for (int time = 0; time < 50; ++time) {
    Group group(3);
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
  Group group(2, milliseconds(20));
  const auto errors = group.run([&](int r, DeviceCollectives& device, Stream& stream) {
    if (r == 1) return;
    device.start(AllReduceCall{{}, DType::kFloat32, ReduceOp::kSum}, stream, &device);
  });
  EXPECT_NE(errors[0].find("DEADLINE_EXCEEDED"), std::string::npos) << errors[0];
}

TEST(SharedCard, AbortFreesWhoWaits) {
  Group group(2, std::nullopt);
  const auto errors = group.run([&](int r, DeviceCollectives& device, Stream& stream) {
    if (r == 1) return group.communicators[0]->abort(Error(Code::kAborted, "enough"));
    device.start(AllReduceCall{{}, DType::kFloat32, ReduceOp::kSum}, stream, &device);
  });
  EXPECT_NE(errors[0].find("enough"), std::string::npos) << errors[0];
}

}  // namespace
}  // namespace cohort
