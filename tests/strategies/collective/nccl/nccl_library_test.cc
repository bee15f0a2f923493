#include <algorithm>
#include <memory>

#include <gtest/gtest.h>

#include "core/device/device.h"
#include "strategies/collective/nccl/device_library.h"
#include "tests/strategies/collective/nccl/device_ranks.h"
#include "tests/strategies/collective/nccl/on_device.h"

// What NCCL does, with a rank for each card: one alone shows calls, limits and ends.
namespace cohort {
namespace {

using testing::DeviceRanks;
using testing::OnDevice;
using testing::run_call;
using testing::segments_at;

constexpr auto kLimit = std::chrono::milliseconds(60'000);
constexpr int kMostRanks = 8;

int cards() {
  const auto devices = list_devices();
  const auto gpus = std::count_if(devices.begin(), devices.end(),
                                  [](Device d) { return d.type == DeviceType::kGpu; });
  return std::min(static_cast<int>(gpus), kMostRanks);
}

// A group of all cards, each with a stream for its computation.
class Nccl : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!missing_gpu_reason().empty()) GTEST_SKIP() << "no GPU: " << missing_gpu_reason();
    ASSERT_NE(nccl_library(), nullptr);
    connect();
  }

  void connect() {
    ranks_.reset();
    ranks_ = std::make_unique<DeviceRanks>(cards(), *nccl_library(), kLimit);
  }

  int size() const { return ranks_->size(); }
  // Runs `rank` on a thread for each; what one throws ends the group and is a failure.
  void on_ranks(const DeviceRanks::Rank& rank) {
    const auto errors = ranks_->run([&](int r, DeviceCollectives& device, Stream& stream) {
      try {
        rank(r, device, stream);
      } catch (const Error& error) {
        ranks_->communicator(r).abort(error);
        throw;
      }
    });
    for (const std::string& error : errors) EXPECT_EQ(error, "");
  }

  std::unique_ptr<DeviceRanks> ranks_;
};

// Small numbers, which every dtype adds up exactly.
Tensor values_of(int rank, int64_t count, DType dtype) {
  Tensor t(DType::kFloat64, {count});
  for (int64_t i = 0; i < count; ++i) t.data<double>()[i] = static_cast<double>(1 + (i + rank) % 3);
  return t.cast(dtype);
}

double combined(ReduceOp op, int size, int64_t i) {
  const auto value = [&](int rank) { return static_cast<double>(1 + (i + rank) % 3); };
  double result = value(0);
  for (int r = 1; r < size; ++r) {
    if (op == ReduceOp::kMin)
      result = std::min(result, value(r));
    else if (op == ReduceOp::kMax)
      result = std::max(result, value(r));
    else
      result += value(r);
  }
  return result;
}

TEST_F(Nccl, CombinesTheSegmentsOfABucket) {
  const std::vector<int64_t> counts = {1000, 1, 0, 63, 65536};
  int64_t total = 0;
  for (const int64_t count : counts) total += count;
  for (const DType dtype : {DType::kFloat32, DType::kFloat64, DType::kBFloat16, DType::kFloat16,
                            DType::kInt32, DType::kInt64})
    for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kMin, ReduceOp::kMax}) {
      if (op != ReduceOp::kSum && is_floating(dtype)) continue;  // on the host
      for (const bool in_place : {true, false})
        on_ranks([&](int rank, DeviceCollectives& device, Stream& stream) {
          OnDevice source(stream.device(), values_of(rank, total, dtype)),
              target(stream.device(), Tensor::zeros(dtype, {total}));
          OnDevice& result = in_place ? source : target;
          const auto segments = segments_at(source.raw(), result.raw(), counts, dtype);
          run_call(device, AllReduceCall{segments, dtype, op}, stream);
          const Tensor found = result.read().cast(DType::kFloat64);
          for (int64_t i = 0; i < total; ++i)
            ASSERT_EQ(found.data<double>()[i], combined(op, size(), i))
                << dtype << " by " << reduce_op_name(op) << ", element " << i;
        });
    }
}

// A step's buckets: memory that is written again and again, by names that come again.
TEST_F(Nccl, ComesBehindTheComputationAndBeforeWhatWaits) {
  constexpr int64_t kCount = 1 << 20;
  constexpr int kBuckets = 3, kSteps = 20;
  on_ranks([&](int, DeviceCollectives& device, Stream& stream) {
    const auto staging =
        device_backend(DeviceType::kGpu).allocate_staging(stream.device(), kCount * sizeof(float));
    std::vector<OnDevice> buckets;
    for (int b = 0; b < kBuckets; ++b)
      buckets.emplace_back(stream.device(), Tensor::zeros(DType::kFloat32, {kCount}));
    OnDevice copy(stream.device(), Tensor::zeros(DType::kFloat32, {kCount}));
    auto* given = static_cast<float*>(staging->data);
    for (int step = 1; step <= kSteps; ++step) {
      std::fill_n(given, kCount, static_cast<float>(step));
      for (OnDevice& bucket : buckets) {
        stream.copy_from_host(given, bucket.raw(), staging->bytes);
        const Segment segment{bucket.raw(), bucket.raw(), kCount};
        device.start(AllReduceCall{{&segment, 1}, DType::kFloat32, ReduceOp::kSum}, stream,
                     &bucket);
      }
      for (auto bucket = buckets.rbegin(); bucket != buckets.rend(); ++bucket)
        device.wait(&*bucket, stream);
      stream.copy_within_device(buckets[0].raw(), copy.raw(), staging->bytes);
      stream.synchronize();
      device.check();
      const Tensor first = copy.read(), last = buckets.back().read();
      for (const Tensor& found : {first, last})
        for (const float x : found.values<float>())
          ASSERT_EQ(x, static_cast<float>(step * size())) << "step " << step;
    }
  });
}

TEST_F(Nccl, MovesPartsOfAnySizes) {
  const int last = size() - 1;
  std::vector<int64_t> counts;
  for (int r = 0; r < size(); ++r) counts.push_back(5 + 2 * r);
  std::vector<int64_t> bytes;
  int64_t total = 0;
  for (const int64_t count : counts) {
    bytes.push_back(count * static_cast<int64_t>(sizeof(float)));
    total += count;
  }
  on_ranks([&](int rank, DeviceCollectives& device, Stream& stream) {
    const auto part = counts[static_cast<size_t>(rank)];
    const auto make = [&](int of, int64_t count) {
      return OnDevice(stream.device(), values_of(of, count, DType::kFloat32));
    };
    const auto read = [](const OnDevice& memory, int64_t i) {
      return memory.read().data<float>()[i];
    };
    OnDevice sent = make(rank, total), received = make(7, total), own = make(rank, part),
             all = make(7, total), share = make(7, part), sum = make(7, total);
    run_call(device,
             BroadcastCall{sent.raw(), received.raw(), total * static_cast<int64_t>(sizeof(float)),
                           last},
             stream);
    run_call(device, AllGatherCall{own.raw(), all.raw(), bytes}, stream);
    run_call(device,
             ReduceScatterCall{sent.raw(), share.raw(), counts, DType::kFloat32, ReduceOp::kSum},
             stream);
    run_call(device,
             ReduceCall{sent.raw(), sum.raw(), total, DType::kFloat32, ReduceOp::kSum, last},
             stream);
    EXPECT_EQ(read(received, 3), static_cast<float>(1 + (3 + last) % 3));
    int64_t begin = 0, own_begin = 0;
    for (int r = 0; r < size(); ++r) {
      if (r == rank) own_begin = begin;
      EXPECT_EQ(read(all, begin + 4), static_cast<float>(1 + (4 + r) % 3)) << "of rank " << r;
      begin += counts[static_cast<size_t>(r)];
    }
    for (int64_t i = 0; i < part; ++i)
      EXPECT_EQ(read(share, i),
                static_cast<float>(combined(ReduceOp::kSum, size(), own_begin + i)));
    if (rank == last) {
      EXPECT_EQ(read(sum, total - 1),
                static_cast<float>(combined(ReduceOp::kSum, size(), total - 1)));
    }
  });
}

// Of the group that lent it, and of the next one; none where NCCL registers none.
TEST_F(Nccl, WorksInMemoryThatItHasLent) {
  constexpr int64_t kCount = 1 << 20;
  const Tensor ones = Tensor::full(DType::kFloat32, {kCount}, 1);
  const size_t bytes = ones.bytes();
  std::vector<std::shared_ptr<Buffer>> kept(static_cast<size_t>(size()));
  const auto reduce = [&](int rank, DeviceCollectives& device, Stream& stream,
                          const std::shared_ptr<Buffer>& memory) {
    if (memory == nullptr) return;
    DeviceBackend& backend = device_backend(DeviceType::kGpu);
    for (int step = 0; step < 3; ++step) {
      backend.copy_from_host(stream.device(), ones.raw(), memory->data, bytes);
      const Segment segment{memory->data, memory->data, kCount};
      run_call(device, AllReduceCall{{&segment, 1}, DType::kFloat32, ReduceOp::kSum}, stream);
      Tensor found(DType::kFloat32, {kCount});
      backend.copy_to_host(stream.device(), memory->data, found.raw(), bytes);
      for (const float x : found.values<float>())
        ASSERT_EQ(x, static_cast<float>(size())) << "rank " << rank;
    }
  };
  on_ranks([&](int rank, DeviceCollectives& device, Stream& stream) {
    for (int time = 0; time < 3; ++time)  // each is given back when the next one is there
      reduce(rank, device, stream, kept[static_cast<size_t>(rank)] = device.allocate(bytes));
  });
  for (const auto& memory : kept) EXPECT_EQ(memory == nullptr, kept[0] == nullptr);
  connect();
  on_ranks([&](int rank, DeviceCollectives& device, Stream& stream) {
    reduce(rank, device, stream, kept[static_cast<size_t>(rank)]);
  });
  ranks_.reset();
}

TEST_F(Nccl, AbortIsTheErrorOfEverythingLater) {
  for (int r = 0; r < size(); ++r) ranks_->communicator(r).abort(Error(Code::kAborted, "enough"));
  for (int r = 0; r < size(); ++r) {
    DeviceCollectives& device = *ranks_->communicator(r).on_device();
    Stream& stream = ranks_->stream(r);
    OnDevice memory(stream.device(), Tensor::zeros(DType::kFloat32, {8}));
    const Segment segment{memory.raw(), memory.raw(), 8};
    try {
      device.start(AllReduceCall{{&segment, 1}, DType::kFloat32, ReduceOp::kSum}, stream, &segment);
      FAIL() << "it has started";
    } catch (const Error& error) {
      EXPECT_EQ(error.message(), "enough");
    }
    EXPECT_THROW(device.check(), Error);
  }
}

TEST_F(Nccl, IsJoinedAgainAfterItsEnd) {
  for (int time = 0; time < 3; ++time) {
    if (time == 1) ranks_->communicator(0).abort(Error(Code::kAborted, "enough"));
    if (time > 0) connect();
    on_ranks([&](int rank, DeviceCollectives& device, Stream& stream) {
      OnDevice memory(stream.device(), values_of(rank, 100, DType::kFloat32));
      const Segment segment{memory.raw(), memory.raw(), 100};
      run_call(device, AllReduceCall{{&segment, 1}, DType::kFloat32, ReduceOp::kSum}, stream);
      EXPECT_EQ(memory.read().data<float>()[1],
                static_cast<float>(combined(ReduceOp::kSum, size(), 1)));
    });
  }
}

}  // namespace
}  // namespace cohort
