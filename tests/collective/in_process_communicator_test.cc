#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "core/base/threads.h"
#include "tests/collective/ranks.h"

namespace cohort::testing {
namespace {

constexpr int64_t kCounts[] = {0, 1, 2, 5, 63, 64, 65, 777, 20'011};
constexpr ReduceOp kOps[] = {ReduceOp::kSum, ReduceOp::kMean, ReduceOp::kMin, ReduceOp::kMax,
                             ReduceOp::kProduct};
constexpr DType kNumbers[] = {DType::kFloat32, DType::kFloat64, DType::kBFloat16, DType::kFloat16,
                              DType::kInt32,   DType::kInt64,   DType::kUInt8};

// Small numbers, so that every op is exact in every dtype (but for means that are no dyadic
// fractions).
double element(int rank, int64_t i) { return 1 + (rank * 3 + i) % 3; }

Tensor elements(DType dtype, int rank, int64_t count) {
  Tensor wide(DType::kFloat64, {count});
  for (int64_t i = 0; i < count; ++i) wide.data<double>()[i] = element(rank, i + rank);
  return wide.cast(dtype);
}

double combine(ReduceOp op, double a, double b) {
  switch (op) {
    case ReduceOp::kMin:
      return std::min(a, b);
    case ReduceOp::kMax:
      return std::max(a, b);
    case ReduceOp::kProduct:
      return a * b;
    default:
      return a + b;
  }
}

// What every rank must get, rounded to the dtype.
Tensor expected(DType dtype, ReduceOp op, int size, int64_t count) {
  Tensor wide = elements(DType::kFloat64, 0, count);
  for (int r = 1; r < size; ++r) {
    const Tensor other = elements(DType::kFloat64, r, count);
    for (int64_t i = 0; i < count; ++i)
      wide.data<double>()[i] = combine(op, wide.data<double>()[i], other.data<double>()[i]);
  }
  if (op == ReduceOp::kMean)
    for (int64_t i = 0; i < count; ++i) wide.data<double>()[i] /= size;
  return wide.cast(dtype);
}

void expect_equal(const Tensor& actual, const Tensor& expected, const std::string& what) {
  ASSERT_EQ(actual.spec(), expected.spec()) << what;
  EXPECT_EQ(std::memcmp(actual.raw(), expected.raw(), actual.bytes()), 0) << what;
}

// As expect_equal, for results that are rounded.
void expect_close(const Tensor& actual, const Tensor& expected, const std::string& what) {
  ASSERT_EQ(actual.spec(), expected.spec()) << what;
  const Tensor a = actual.cast(DType::kFloat64), b = expected.cast(DType::kFloat64);
  for (int64_t i = 0; i < a.num_elements(); ++i)
    ASSERT_NEAR(a.data<double>()[i], b.data<double>()[i], 1e-2 * std::abs(b.data<double>()[i]))
        << what << ", element " << i;
}

Segment whole(Tensor& tensor) { return {tensor.raw(), tensor.raw(), tensor.num_elements()}; }

class InProcessCommunicatorTest
    : public ::testing::TestWithParam<std::tuple<int, InProcessReduction>> {
 protected:
  int size() const { return std::get<0>(GetParam()); }
  template <typename Work>
  void on_all(const Work& work) const {
    on_ranks(size(), work, std::get<1>(GetParam()));
  }
};
INSTANTIATE_TEST_SUITE_P(Groups, InProcessCommunicatorTest,
                         ::testing::Combine(::testing::Values(1, 2, 3, 4, 5, 7, 8),
                                            ::testing::Values(InProcessReduction::kSlices,
                                                              InProcessReduction::kFirstRank)));

TEST_P(InProcessCommunicatorTest, ReducesEveryDTypeByEveryOp) {
  on_all([&](int rank, Communicator& communicator) {
    EXPECT_EQ(communicator.size(), size());
    for (const DType dtype : kNumbers)
      for (const ReduceOp op : kOps) {
        if (op == ReduceOp::kMean && !is_floating(dtype)) continue;
        Tensor data = elements(dtype, rank, 130);
        const Segment segment = whole(data);
        communicator.all_reduce({&segment, 1}, dtype, op);
        if (dtype == DType::kUInt8 && op == ReduceOp::kProduct) continue;  // wraps, below
        expect_close(data, expected(dtype, op, size(), 130), str(dtype, " ", reduce_op_name(op)));
      }
  });
}

TEST_P(InProcessCommunicatorTest, SumsBucketsOfAnyCountsInPlaceAndNot) {
  const Tensor three = expected(DType::kFloat32, ReduceOp::kSum, size(), 3);
  for (const int64_t count : kCounts) {
    const Tensor sum = expected(DType::kFloat32, ReduceOp::kSum, size(), count);
    on_all([&](int rank, Communicator& communicator) {
      const Tensor own = elements(DType::kFloat32, rank, count);
      Tensor a = own.clone(), b = elements(DType::kFloat32, rank, 3), c(DType::kFloat32, {count});
      const Segment segments[] = {whole(a), whole(b), {b.raw(), b.raw(), 0}};
      communicator.all_reduce(segments, DType::kFloat32, ReduceOp::kSum);
      expect_equal(a, sum, "in place");
      expect_equal(b, three, "the second");
      const Segment apart{own.raw(), c.raw(), count};
      communicator.all_reduce({&apart, 1}, DType::kFloat32, ReduceOp::kSum);
      expect_equal(c, sum, "apart");
      expect_equal(own, elements(DType::kFloat32, rank, count), "the source is only read");
    });
  }
}

TEST_P(InProcessCommunicatorTest, WritesNoTargetThatARankDoesNotWant) {
  for (const int64_t count : {1, 200, 5000}) {
    const Tensor sum = expected(DType::kFloat32, ReduceOp::kSum, size(), count);
    on_all([&](int rank, Communicator& communicator) {
      // Segment k is wanted by rank k alone, and the last one by nobody.
      const Tensor own = elements(DType::kFloat32, rank, count);
      std::vector<Tensor> data;
      std::vector<Segment> segments;
      for (int k = 0; k <= size(); ++k) {
        data.push_back(own.clone());
        segments.push_back({data.back().raw(), k == rank ? data.back().raw() : nullptr, count});
      }
      communicator.all_reduce(segments, DType::kFloat32, ReduceOp::kSum);
      for (int k = 0; k <= size(); ++k)
        expect_equal(data[static_cast<size_t>(k)], k == rank ? sum : own, str("segment ", k));
    });
  }
}

TEST_P(InProcessCommunicatorTest, HalfTypesAreRoundedOnce) {
  on_all([&](int /*rank*/, Communicator& communicator) {
    // One after the other, 256 + 1 + 1 + ... stays 256 in bfloat16.
    Tensor data = Tensor::full(DType::kBFloat16, {70}, communicator.rank() == 0 ? 256 : 1);
    const Segment segment = whole(data);
    communicator.all_reduce({&segment, 1}, DType::kBFloat16, ReduceOp::kSum);
    const bfloat16 sum(static_cast<float>(255 + size()));
    for (const bfloat16 x : data.values<bfloat16>()) ASSERT_EQ(x.bits, sum.bits);
  });
}

TEST_P(InProcessCommunicatorTest, ANaNOnAnyRankWinsMinAndMax) {
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

TEST_P(InProcessCommunicatorTest, IntegersWrapAround) {
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

TEST_P(InProcessCommunicatorTest, BitsAreTheSameOnEveryRankAndForAnyTeam) {
  constexpr int64_t kCount = 40'001;
  const auto fractions = [](int rank) {
    Tensor data(DType::kFloat32, {kCount});
    for (int64_t i = 0; i < kCount; ++i)
      data.data<float>()[i] = std::sin(static_cast<float>(i * 31 + rank * 17));
    return data;
  };
  Tensor in_order = fractions(0);
  for (int r = 1; r < size(); ++r) {
    const Tensor other = fractions(r);
    for (int64_t i = 0; i < kCount; ++i) in_order.data<float>()[i] += other.data<float>()[i];
  }
  for (const int team : {1, 3})
    on_all([&](int rank, Communicator& communicator) {
      set_num_threads(team);
      Tensor data = fractions(rank);
      const Segment segment = whole(data);
      communicator.all_reduce({&segment, 1}, DType::kFloat32, ReduceOp::kSum);
      EXPECT_EQ(std::memcmp(data.raw(), in_order.raw(), data.bytes()), 0)
          << "rank " << rank << ", team of " << team;
    });
}

TEST_P(InProcessCommunicatorTest, GathersPartsOfAnySizes) {
  on_all([&](int rank, Communicator& communicator) {
    for (const int64_t unit : {0, 1, 3, 70'000}) {
      std::vector<int64_t> bytes;
      for (int r = 0; r < size(); ++r) bytes.push_back(unit * ((r * 2 + 1) % 3));  // some empty
      const auto own = static_cast<size_t>(bytes[static_cast<size_t>(rank)]);
      const int64_t total = std::accumulate(bytes.begin(), bytes.end(), int64_t{0});
      const std::vector<char> part(own, static_cast<char>('a' + rank));
      std::vector<char> all(static_cast<size_t>(total));
      communicator.all_gather(part.data(), all.data(), bytes);
      std::string joined;
      for (int r = 0; r < size(); ++r)
        joined.append(static_cast<size_t>(bytes[static_cast<size_t>(r)]),
                      static_cast<char>('a' + r));
      ASSERT_TRUE(std::equal(all.begin(), all.end(), joined.begin(), joined.end()));
    }
  });
}

TEST_P(InProcessCommunicatorTest, BroadcastsFromEveryRootInPlaceAndNot) {
  on_all([&](int rank, Communicator& communicator) {
    for (int root = 0; root < size(); ++root)
      for (const size_t bytes : {0u, 1u, 300'000u}) {
        std::vector<char> value(bytes, static_cast<char>(rank)), copy(bytes, 99);
        communicator.broadcast(value.data(), copy.data(), static_cast<int64_t>(bytes), root);
        ASSERT_EQ(copy, std::vector<char>(bytes, static_cast<char>(root)));
        communicator.broadcast(value.data(), value.data(), static_cast<int64_t>(bytes), root);
        ASSERT_EQ(value, copy);
      }
  });
}

TEST_P(InProcessCommunicatorTest, ABarrierOpensWhenAllAreThere) {
  std::vector<std::atomic<int>> passed(static_cast<size_t>(size()));
  on_all([&](int rank, Communicator& communicator) {
    for (int round = 1; round <= 50; ++round) {
      passed[static_cast<size_t>(rank)] = round;
      communicator.barrier();
      for (const auto& other : passed) ASSERT_GE(other, round);
    }
  });
}

TEST_P(InProcessCommunicatorTest, ManyOperationsAreStartedBeforeAnyWaitAndAwaitedInAnyOrder) {
  constexpr int kOperations = 20;
  std::vector<Tensor> sums;
  for (int k = 0; k < kOperations; ++k)
    sums.push_back(expected(DType::kFloat32, ReduceOp::kSum, size(), 100 * k));
  on_all([&](int rank, Communicator& communicator) {
    for (int round = 0; round < 3; ++round) {
      std::vector<Tensor> data;
      std::vector<Segment> segments;
      for (int k = 0; k < kOperations; ++k) {
        data.push_back(elements(DType::kFloat32, rank, 100 * k));
        segments.push_back(whole(data.back()));
      }
      std::vector<int64_t> operations;
      for (const Segment& segment : segments) {
        operations.push_back(
            communicator.start_all_reduce({&segment, 1}, DType::kFloat32, ReduceOp::kSum));
        EXPECT_GE(operations.back(), 0);
      }
      for (int k = 0; k < kOperations; ++k) {  // another order on every rank
        const int next = (k * 7 + rank) % kOperations;
        communicator.wait(operations[static_cast<size_t>(next)]);
        expect_equal(data[static_cast<size_t>(next)], sums[static_cast<size_t>(next)],
                     str("operation ", next));
      }
    }
  });
}

TEST_P(InProcessCommunicatorTest, BlockingCallsFollowWhatWasStarted) {
  on_all([&](int rank, Communicator& communicator) {
    Tensor data = elements(DType::kFloat64, rank, 1000);
    const Segment segment = whole(data);
    // The second reduces the result of the first, and the third that of the second.
    const int64_t first =
        communicator.start_all_reduce({&segment, 1}, DType::kFloat64, ReduceOp::kSum);
    communicator.all_reduce({&segment, 1}, DType::kFloat64, ReduceOp::kSum);
    const int64_t third =
        communicator.start_all_reduce({&segment, 1}, DType::kFloat64, ReduceOp::kSum);
    std::vector<double> copy(1000);
    communicator.broadcast(data.raw(), copy.data(), 8000, size() - 1);
    communicator.wait(third);
    communicator.wait(first);
    const Tensor sum = expected(DType::kFloat64, ReduceOp::kSum, size(), 1000);
    for (size_t i = 0; i < copy.size(); ++i) {
      ASSERT_EQ(copy[i], sum.data<double>()[i] * size() * size());
      ASSERT_EQ(data.data<double>()[i], copy[i]);
    }
  });
}

TEST_P(InProcessCommunicatorTest, TellsTheObserverWhatMoved) {
  on_all([&](int rank, Communicator& communicator) {
    std::vector<std::pair<std::string, int64_t>> seen;
    communicator.set_observer([&](const CommunicationEvent& event) {
      EXPECT_LE(event.begin, event.end);
      seen.emplace_back(event.kind, event.bytes);
    });
    Tensor data = elements(DType::kFloat32, rank, 100);
    const Segment segment = whole(data);
    communicator.wait(
        communicator.start_all_reduce({&segment, 1}, DType::kFloat32, ReduceOp::kSum));
    communicator.broadcast(data.raw(), data.raw(), 400, 0);
    communicator.barrier();
    const std::vector<std::pair<std::string, int64_t>> expected = {{"AllReduce", 400},
                                                                   {"Broadcast", 400}};
    EXPECT_EQ(seen, expected);
  });
}

TEST(InProcessCommunicatorTest, TwoGroupsWorkAtOnceInOppositeOrder) {
  const auto a = make_in_process_communicators(3), b = make_in_process_communicators(3);
  const auto use = [](Communicator& first, Communicator& second) {
    for (int round = 0; round < 100; ++round) {
      Tensor x = elements(DType::kFloat32, first.rank(), 300), y = x.clone();
      const Segment xs = whole(x), ys = whole(y);
      const int64_t operation = first.start_all_reduce({&xs, 1}, DType::kFloat32, ReduceOp::kSum);
      const int64_t other = second.start_all_reduce({&ys, 1}, DType::kFloat32, ReduceOp::kMax);
      second.wait(other);
      first.wait(operation);
      expect_equal(x, expected(DType::kFloat32, ReduceOp::kSum, 3, 300), "sum");
      expect_equal(y, expected(DType::kFloat32, ReduceOp::kMax, 3, 300), "max");
    }
  };
  // The same ranks, on two threads each, which use two groups each in the other order.
  const auto c = make_in_process_communicators(3), d = make_in_process_communicators(3);
  std::thread others([&] {
    on_ranks(c, [&](int rank, Communicator& x) { use(x, *d[static_cast<size_t>(rank)]); });
  });
  on_ranks(b, [&](int rank, Communicator& x) { use(x, *a[static_cast<size_t>(rank)]); });
  others.join();
}

TEST(InProcessCommunicatorTest, AGroupHasARank) {
  EXPECT_EQ(error_of([] { make_in_process_communicators(0); }).code(), Code::kInvalidArgument);
}

TEST(ReduceOpTest, IsNamedInAnyCase) {
  for (const ReduceOp op : kOps) EXPECT_EQ(reduce_op_from_name(reduce_op_name(op)), op);
  EXPECT_EQ(reduce_op_from_name("MEAN"), ReduceOp::kMean);
  EXPECT_EQ(error_of([] { reduce_op_from_name("avg"); }).message(),
            "\"avg\" is not a reduce op; allowed are sum, mean, min, max, product, bit_and, "
            "bit_or, bit_xor");
}

}  // namespace
}  // namespace cohort::testing
