#include <chrono>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>

#include "core/base/threads.h"
#include "tests/collective/conformance.h"
#include "tests/collective/exercise.h"

// Every kind of call gives what a plain loop gives.
namespace cohort::testing {
namespace {

constexpr int64_t kCounts[] = {0, 1, 2, 5, 63, 64, 65, 777, 20'011, 300'001};

Segment whole(Tensor& tensor) { return {tensor.raw(), tensor.raw(), tensor.num_elements()}; }

// Numbers whose sum depends on the order in which they are added.
Tensor fractions(int rank, int64_t count) {
  Tensor data(DType::kFloat32, {count});
  for (int64_t i = 0; i < count; ++i)
    data.data<float>()[i] = std::sin(static_cast<float>(i * 31 + rank * 17));
  return data;
}

// Runs exercises of one kind of call.
void run_exercises(int rank, Communicator& communicator, size_t kind) {
  for (uint64_t seed = 0; seed < 24; ++seed) {
    Exercise exercise(rank, communicator.size(), seed, kind, seed % 6 == 5 ? 200'000 : 3000);
    communicator.run(exercise.call());
    exercise.check();
  }
}

TEST_P(CommunicatorConformanceTest, EveryRankKnowsItsPlace) {
  on_all([&](int rank, Communicator& communicator) {
    EXPECT_EQ(communicator.size(), size());
    EXPECT_EQ(communicator.rank(), rank);
    EXPECT_GE(rank, 0);
    EXPECT_LT(rank, size());
  });
}

TEST_P(CommunicatorConformanceTest, AllReducesEveryDTypeByEveryOp) {
  on_all([&](int rank, Communicator& communicator) {
    for (const DType dtype : kNumbers)
      for (const ReduceOp op : kAllOps) {
        if (!allowed(op, dtype)) continue;
        Tensor data = elements(dtype, rank, 3, 130);
        const Segment segment = whole(data);
        communicator.all_reduce({&segment, 1}, dtype, op);
        expect_result(data, combined(dtype, op, size(), 3, 130), op,
                      str(dtype, " ", reduce_op_name(op)));
      }
  });
}

TEST_P(CommunicatorConformanceTest, AllReducesBucketsOfAnyCountsInPlaceAndNot) {
  for (const int64_t count : kCounts) {
    const Tensor sum = combined(DType::kFloat32, ReduceOp::kSum, size(), 1, count);
    const Tensor three = combined(DType::kFloat32, ReduceOp::kSum, size(), 1, 3);
    on_all([&](int rank, Communicator& communicator) {
      const Tensor own = elements(DType::kFloat32, rank, 1, count);
      Tensor a = own.clone(), b = elements(DType::kFloat32, rank, 1, 3),
             c(DType::kFloat32, {count});
      const Segment segments[] = {whole(a), whole(b), {b.raw(), b.raw(), 0}};
      communicator.all_reduce(segments, DType::kFloat32, ReduceOp::kSum);
      expect_result(a, sum, ReduceOp::kSum, "in place");
      expect_result(b, three, ReduceOp::kSum, "the second");
      const Segment apart{own.raw(), c.raw(), count};
      communicator.all_reduce({&apart, 1}, DType::kFloat32, ReduceOp::kSum);
      expect_result(c, sum, ReduceOp::kSum, "apart");
      expect_result(own, elements(DType::kFloat32, rank, 1, count), ReduceOp::kSum,
                    "the source is only read");
    });
  }
}

TEST_P(CommunicatorConformanceTest, AllReducesHundredsOfSegmentsAtOnce) {
  on_all([&](int rank, Communicator& communicator) {
    for (const int64_t unit : {1, 1000}) {
      std::vector<Tensor> data;
      std::vector<Segment> segments;
      for (uint64_t k = 0; k < 300; ++k) {
        data.push_back(elements(DType::kFloat32, rank, k, static_cast<int64_t>(k % 7) * unit));
        segments.push_back(whole(data.back()));
      }
      communicator.all_reduce(segments, DType::kFloat32, ReduceOp::kSum);
      for (uint64_t k = 0; k < 300; ++k)
        expect_result(data[k],
                      combined(DType::kFloat32, ReduceOp::kSum, size(), k, data[k].num_elements()),
                      ReduceOp::kSum, str("segment ", k));
    }
    communicator.all_reduce({}, DType::kFloat32, ReduceOp::kSum);
  });
}

TEST_P(CommunicatorConformanceTest, WritesNoTargetThatARankDoesNotWant) {
  for (const int64_t count : {1, 200, 5000, 100'000}) {
    const Tensor sum = combined(DType::kFloat32, ReduceOp::kSum, size(), 1, count);
    on_all([&](int rank, Communicator& communicator) {
      // Segment k is wanted by rank k alone, and the last one by nobody.
      const Tensor own = elements(DType::kFloat32, rank, 1, count);
      std::vector<Tensor> data;
      std::vector<Segment> segments;
      for (int k = 0; k <= size(); ++k) {
        data.push_back(own.clone());
        segments.push_back({data.back().raw(), k == rank ? data.back().raw() : nullptr, count});
      }
      communicator.all_reduce(segments, DType::kFloat32, ReduceOp::kSum);
      for (int k = 0; k <= size(); ++k)
        expect_result(data[static_cast<size_t>(k)], k == rank ? sum : own, ReduceOp::kSum,
                      str("segment ", k));
    });
  }
}

TEST_P(CommunicatorConformanceTest, HalfTypesAreRoundedOnce) {
  on_all([&](int rank, Communicator& communicator) {
    for (const int64_t count : {70, 100'000}) {
      // One after the other, 256 + 1 + 1 + ... stays 256 in bfloat16.
      Tensor data = Tensor::full(DType::kBFloat16, {count}, rank == 0 ? 256 : 1);
      const Segment segment = whole(data);
      communicator.all_reduce({&segment, 1}, DType::kBFloat16, ReduceOp::kSum);
      const bfloat16 sum(static_cast<float>(255 + size()));
      for (const bfloat16 x : data.values<bfloat16>()) ASSERT_EQ(x.bits, sum.bits);
    }
  });
}

TEST_P(CommunicatorConformanceTest, AMeanOfFloatsIsNotTruncated) {
  on_all([&](int rank, Communicator& communicator) {
    float value = rank == 0 ? 1 : 2;
    const Segment segment{&value, &value, 1};
    communicator.all_reduce({&segment, 1}, DType::kFloat32, ReduceOp::kMean);
    EXPECT_FLOAT_EQ(value, static_cast<float>(2 * size() - 1) / static_cast<float>(size()));
  });
}

TEST_P(CommunicatorConformanceTest, BitsOfDifferentRanksCombine) {
  on_all([&](int rank, Communicator& communicator) {
    const int32_t own = 1 << rank;
    int32_t result = 0;
    const Segment segment{&own, &result, 1};
    communicator.all_reduce({&segment, 1}, DType::kInt32, ReduceOp::kBitAnd);
    EXPECT_EQ(result, size() == 1 ? 1 : 0);
    for (const ReduceOp op : {ReduceOp::kBitOr, ReduceOp::kBitXor}) {
      communicator.all_reduce({&segment, 1}, DType::kInt32, op);
      EXPECT_EQ(result, (1 << size()) - 1);
    }
  });
}

TEST_P(CommunicatorConformanceTest, ANaNOnAnyRankWinsMinAndMax) {
  on_all([&](int rank, Communicator& communicator) {
    for (int who = 0; who < size(); ++who)
      for (const ReduceOp op : {ReduceOp::kMin, ReduceOp::kMax}) {
        Tensor data = Tensor::full(DType::kFloat32, {9}, rank);
        if (rank == who) data.data<float>()[4] = std::nanf("");
        const Segment segment = whole(data);
        communicator.all_reduce({&segment, 1}, DType::kFloat32, op);
        for (int i = 0; i < 9; ++i)
          ASSERT_EQ(std::isnan(data.data<float>()[i]), i == 4) << "NaN of rank " << who;
      }
  });
}

TEST_P(CommunicatorConformanceTest, IntegersWrapAround) {
  on_all([&](int rank, Communicator& communicator) {
    Tensor small = Tensor::full(DType::kUInt8, {5}, 200);
    Tensor large(DType::kInt32, {5});
    for (int32_t& x : std::span(large.data<int32_t>(), 5))
      x = rank == 0 ? std::numeric_limits<int32_t>::max() : 1;
    const Segment a = whole(small), b = whole(large);
    communicator.all_reduce({&a, 1}, DType::kUInt8, ReduceOp::kSum);
    communicator.all_reduce({&b, 1}, DType::kInt32, ReduceOp::kSum);
    EXPECT_EQ(small.data<uint8_t>()[4], static_cast<uint8_t>(200 * size()));
    EXPECT_EQ(large.data<int32_t>()[4],
              static_cast<int32_t>(uint32_t{0x7fffffff} + static_cast<uint32_t>(size() - 1)));
  });
}

TEST_P(CommunicatorConformanceTest, BitsAreTheSameOnEveryRankRunAndTeam) {
  for (const int64_t count : {5, 3000, 40'001, 200'003}) {
    std::vector<std::vector<char>> runs(3);
    for (const int run : {0, 1, 2})
      on_all([&](int rank, Communicator& communicator) {
        set_num_threads(run == 2 ? 3 : 1);
        Tensor data = fractions(rank, count);
        const Segment segment = whole(data);
        communicator.all_reduce({&segment, 1}, DType::kFloat32, ReduceOp::kSum);
        std::vector<char> first(data.bytes());
        communicator.broadcast(data.raw(), first.data(), static_cast<int64_t>(first.size()), 0);
        EXPECT_EQ(std::memcmp(data.raw(), first.data(), first.size()), 0) << "rank " << rank;
        if (rank == 0) runs[static_cast<size_t>(run)] = first;
      });
    EXPECT_EQ(runs[0], runs[1]) << count << " elements";
    EXPECT_EQ(runs[0], runs[2]) << count << " elements";
  }
}

TEST_P(CommunicatorConformanceTest, AllReduces) {
  on_all([](int rank, Communicator& c) { run_exercises(rank, c, 1); });
}

TEST_P(CommunicatorConformanceTest, ReducesToAnyRoot) {
  on_all([](int rank, Communicator& c) { run_exercises(rank, c, 2); });
}

TEST_P(CommunicatorConformanceTest, ReduceScattersUnequalParts) {
  on_all([](int rank, Communicator& c) { run_exercises(rank, c, 3); });
}

TEST_P(CommunicatorConformanceTest, BroadcastsFromAnyRoot) {
  on_all([](int rank, Communicator& c) { run_exercises(rank, c, 4); });
}

TEST_P(CommunicatorConformanceTest, AllGathersUnequalParts) {
  on_all([](int rank, Communicator& c) { run_exercises(rank, c, 5); });
}

TEST_P(CommunicatorConformanceTest, GathersToAnyRoot) {
  on_all([](int rank, Communicator& c) { run_exercises(rank, c, 6); });
}

TEST_P(CommunicatorConformanceTest, ScattersFromAnyRoot) {
  on_all([](int rank, Communicator& c) { run_exercises(rank, c, 7); });
}

TEST_P(CommunicatorConformanceTest, ExchangesUnequalPartsAllToAll) {
  on_all([](int rank, Communicator& c) { run_exercises(rank, c, 8); });
}

TEST_P(CommunicatorConformanceTest, EveryRankIsRootInTurn) {
  on_all([&](int rank, Communicator& communicator) {
    for (int root = 0; root < size(); ++root)
      for (const int64_t count : {1, 50'000}) {
        const Tensor own = elements(DType::kInt32, rank, 9, count);
        Tensor data = own.clone();
        communicator.reduce(own.raw(), data.raw(), count, DType::kInt32, ReduceOp::kSum, root);
        if (rank == root)
          expect_result(data, combined(DType::kInt32, ReduceOp::kSum, size(), 9, count),
                        ReduceOp::kSum, "reduce");
        communicator.broadcast(own.raw(), data.raw(), count * 4, root);
        expect_result(data, elements(DType::kInt32, root, 9, count), ReduceOp::kSum, "broadcast");
        const std::vector<int64_t> bytes(static_cast<size_t>(size()), count * 4);
        Tensor all(DType::kInt32, {count * size()});
        communicator.gather(own.raw(), all.raw(), bytes, root);
        for (int r = 0; rank == root && r < size(); ++r)
          expect_result(all.slice_rows(r * count, (r + 1) * count).clone(),
                        elements(DType::kInt32, r, 9, count), ReduceOp::kSum, "gather");
        communicator.scatter(all.raw(), data.raw(), bytes, root);
        expect_result(data, own, ReduceOp::kSum, "scatter of what was gathered");
      }
  });
}

TEST_P(CommunicatorConformanceTest, ABarrierOpensWhenAllAreThere) {
  using Clock = std::chrono::steady_clock;  // the same for all processes of a host
  on_all([&](int rank, Communicator& communicator) {
    for (int round = 0; round < 30; ++round) {
      if (round % size() == rank) std::this_thread::yield();
      const Clock::time_point came = Clock::now();
      communicator.barrier();
      const Clock::time_point went = Clock::now();
      std::vector<Clock::time_point> all(static_cast<size_t>(size()));
      communicator.all_gather(&came, all.data(),
                              std::vector<int64_t>(all.size(), sizeof(Clock::time_point)));
      for (const Clock::time_point other : all) ASSERT_LE(other, went);
    }
  });
}

TEST_P(CommunicatorConformanceTest, MemoryOfTheBackendIsCombinedAsAnyOther) {
  on_all([&](int rank, Communicator& communicator) {
    for (const int64_t count : {1, 100'000}) {
      const auto buffer = communicator.allocate(static_cast<size_t>(count) * 4);
      Tensor data(DType::kFloat32, {count}, buffer);
      data.assign(elements(DType::kFloat32, rank, 5, count));
      const Segment segment = whole(data);
      communicator.all_reduce({&segment, 1}, DType::kFloat32, ReduceOp::kSum);
      expect_result(data, combined(DType::kFloat32, ReduceOp::kSum, size(), 5, count),
                    ReduceOp::kSum, str(count, " elements"));
    }
  });
}

}  // namespace
}  // namespace cohort::testing
