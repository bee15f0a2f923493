#include <memory>
#include <numeric>

#include "tests/collective/conformance.h"
#include "tests/collective/exercise.h"

// Collectives in the background, and long programs of everything.
namespace cohort::testing {
namespace {

// The numbers below `n` in an order of their own for each seed.
std::vector<size_t> shuffled(size_t n, uint64_t seed) {
  std::vector<size_t> order(n);
  std::iota(order.begin(), order.end(), size_t{0});
  RandomStream stream(seed);
  for (size_t i = n; i > 1; --i) std::swap(order[i - 1], order[stream.below(i)]);
  return order;
}

TEST_P(CommunicatorConformanceTest, OperationsOfEveryKindAreAwaitedInAnyOrder) {
  on_all([&](int rank, Communicator& communicator) {
    for (uint64_t round = 0; round < 3; ++round) {
      std::vector<std::unique_ptr<Exercise>> exercises;
      std::vector<int64_t> operations;
      for (size_t k = 0; k < 27; ++k) {
        exercises.push_back(
            std::make_unique<Exercise>(rank, size(), 100 * round + k, k % 9, 20'000));
        operations.push_back(communicator.start(exercises.back()->call()));
        EXPECT_GE(operations.back(), 0);
      }
      // Another order on every rank.
      for (const size_t next :
           shuffled(operations.size(), round * 10 + static_cast<uint64_t>(rank))) {
        communicator.wait(operations[next]);
        exercises[next]->check();
      }
    }
  });
}

TEST_P(CommunicatorConformanceTest, AThousandOperationsAreUnderWay) {
  constexpr int kOperations = 1000;
  on_all([&](int rank, Communicator& communicator) {
    std::vector<int64_t> values(kOperations), operations(kOperations);
    std::vector<Segment> segments(kOperations);
    for (size_t i = 0; i < kOperations; ++i) {
      values[i] = static_cast<int64_t>(i) + rank;
      segments[i] = {&values[i], &values[i], 1};
      operations[i] =
          communicator.start_all_reduce({&segments[i], 1}, DType::kInt64, ReduceOp::kSum);
    }
    for (const size_t i : shuffled(kOperations, static_cast<uint64_t>(rank))) {
      communicator.wait(operations[i]);
      ASSERT_EQ(values[i], static_cast<int64_t>(i) * size() + size() * (size() - 1) / 2);
    }
  });
}

TEST_P(CommunicatorConformanceTest, BlockingCallsFollowWhatWasStarted) {
  on_all([&](int rank, Communicator& communicator) {
    Tensor data = elements(DType::kFloat64, rank, 1, 1000);
    const Segment segment{data.raw(), data.raw(), 1000};
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
    const Tensor sum = combined(DType::kFloat64, ReduceOp::kSum, size(), 1, 1000);
    for (size_t i = 0; i < copy.size(); ++i) {
      ASSERT_EQ(copy[i], sum.data<double>()[i] * size() * size());
      ASSERT_EQ(data.data<double>()[i], copy[i]);
    }
  });
}

TEST_P(CommunicatorConformanceTest, ABarrierEndsWhatWasStarted) {
  constexpr size_t kTensors = 16, kCount = 10'000;
  on_all([&](int /*rank*/, Communicator& communicator) {
    std::vector<Tensor> data;
    std::vector<Segment> segments;
    for (size_t i = 0; i < kTensors; ++i) {
      data.push_back(Tensor::full(DType::kFloat32, {kCount}, static_cast<double>(i)));
      segments.push_back({data[i].raw(), data[i].raw(), kCount});
    }
    std::vector<int64_t> operations;
    for (const Segment& segment : segments)
      operations.push_back(
          communicator.start_all_reduce({&segment, 1}, DType::kFloat32, ReduceOp::kSum));
    communicator.barrier();
    for (size_t i = 0; i < kTensors; ++i)
      for (const float x : data[i].values<float>())
        ASSERT_EQ(x, static_cast<float>(i) * static_cast<float>(size()));
    for (const int64_t operation : operations) communicator.wait(operation);
  });
}

TEST_P(CommunicatorConformanceTest, TellsWhatIsDone) {
  if (size() == 1) return;  // nothing is started
  on_all([&](int rank, Communicator& communicator) {
    int64_t value = rank, got = -1;
    const Segment segment{&value, &value, 1};
    if (rank == 0) {
      const int64_t receiving = communicator.start_receive({&got, sizeof got, 1});
      const int64_t reducing =
          communicator.start_all_reduce({&segment, 1}, DType::kInt64, ReduceOp::kSum);
      EXPECT_FALSE(communicator.is_done(receiving));
      EXPECT_FALSE(communicator.is_done(reducing)) << "the others wait for a message";
      for (int r = 1; r < size(); ++r) communicator.send(&value, 0, r, 1);
      while (!communicator.is_done(reducing)) std::this_thread::yield();
      EXPECT_EQ(value, size() * (size() - 1) / 2);
      while (!communicator.is_done(receiving)) std::this_thread::yield();
      EXPECT_EQ(got, 7);
      EXPECT_EQ(communicator.wait(receiving).source, 1);
      communicator.wait(reducing);
      for (const int64_t operation : {receiving, reducing})
        EXPECT_EQ(error_of([&] { communicator.is_done(operation); }).code(),
                  Code::kInvalidArgument);
    } else {
      communicator.receive(nullptr, 0, 0, 1);
      communicator.all_reduce({&segment, 1}, DType::kInt64, ReduceOp::kSum);
      const int64_t seven = 7;
      if (rank == 1) communicator.send(&seven, sizeof seven, 0);
    }
    communicator.barrier();
    // What waits for nobody, as the group has ended.
    const int64_t for_nobody = communicator.start_receive({&got, sizeof got});
    EXPECT_FALSE(communicator.is_done(for_nobody));
    communicator.barrier();
    communicator.abort(Error(Code::kAborted, "enough"));
    while (!communicator.is_done(for_nobody)) std::this_thread::yield();
    EXPECT_EQ(error_of([&] { communicator.wait(for_nobody); }).code(), Code::kAborted);
  });
}

TEST_P(CommunicatorConformanceTest, AnOperationIsAwaitedOnce) {
  if (size() == 1) return;  // nothing is started: see that it works
  on_all([&](int /*rank*/, Communicator& communicator) {
    const float value = 1;
    const Segment segment{&value, nullptr, 1};
    const int64_t operation =
        communicator.start_all_reduce({&segment, 1}, DType::kFloat32, ReduceOp::kSum);
    communicator.wait(operation);
    EXPECT_EQ(error_of([&] { communicator.wait(operation); }).code(), Code::kInvalidArgument);
    EXPECT_EQ(error_of([&] { communicator.wait(99); }).code(), Code::kInvalidArgument);
  });
}

// A message between two ranks, as one of them sees it.
struct Letter {
  int from, to, tag;
  std::vector<uint8_t> content, memory;
  int64_t operation = -1;
};

// A program that all ranks run: collectives of every kind, at once or in the background, and
// messages, with waits in an order of each rank's own.
class RandomProgram {
 public:
  RandomProgram(int rank, Communicator& communicator, uint64_t seed)
      : rank_(rank),
        communicator_(communicator),
        seed_(seed),
        common_(seed),
        own_(seed, 1 + static_cast<uint64_t>(rank)) {}

  void run(int steps) {
    for (int step = 0; step < steps; ++step) {
      if (common_.below(4) == 0 && communicator_.size() > 1)
        exchange_letter();
      else
        call();
      while (started_.size() + letters_.size() > own_.below(12)) await_any();
    }
    while (started_.size() + letters_.size() > 0) await_any();
  }

 private:
  void call() {
    const uint64_t seed = common_.next() >> 8;
    const size_t kind = common_.below(9);
    const bool in_background = common_.below(2) == 0;
    auto exercise = std::make_unique<Exercise>(rank_, communicator_.size(), seed, kind,
                                               common_.below(40) == 0 ? 100'000 : 300);
    if (in_background) {
      const int64_t operation = communicator_.start(exercise->call());
      started_.emplace_back(operation, std::move(exercise));
    } else {
      communicator_.run(exercise->call());
      exercise->check();
    }
  }

  void exchange_letter() {
    const auto size = static_cast<uint64_t>(communicator_.size());
    const int from = static_cast<int>(common_.below(size));
    const int to =
        static_cast<int>((static_cast<uint64_t>(from) + 1 + common_.below(size - 1)) % size);
    auto letter =
        std::make_unique<Letter>(Letter{from, to, static_cast<int>(common_.below(3)), {}, {}});
    letter->content.resize(common_.below(20) == 0 ? 200'000 : common_.below(300));
    const uint64_t first = common_.next();
    for (size_t i = 0; i < letter->content.size(); ++i)
      letter->content[i] = static_cast<uint8_t>(first + i * 7);
    const auto bytes = static_cast<int64_t>(letter->content.size());
    if (rank_ == from) {
      letter->operation =
          communicator_.start_send({letter->content.data(), bytes, to, letter->tag});
    } else if (rank_ == to) {
      letter->memory.resize(letter->content.size());
      letter->operation =
          communicator_.start_receive({letter->memory.data(), bytes, from, letter->tag});
    } else {
      return;
    }
    letters_.push_back(std::move(letter));
  }

  void await_any() {
    const size_t which = own_.below(started_.size() + letters_.size());
    if (which < started_.size()) {
      communicator_.wait(started_[which].first);
      started_[which].second->check();
      started_.erase(started_.begin() + static_cast<std::ptrdiff_t>(which));
      return;
    }
    const auto at = letters_.begin() + static_cast<std::ptrdiff_t>(which - started_.size());
    const Letter& letter = **at;
    const Received received = communicator_.wait(letter.operation);
    if (rank_ == letter.to) {
      EXPECT_EQ(received.source, letter.from);
      EXPECT_EQ(received.tag, letter.tag);
      EXPECT_EQ(received.bytes, static_cast<int64_t>(letter.content.size()));
      ASSERT_EQ(letter.memory, letter.content) << "seed " << seed_ << ", rank " << rank_;
    }
    letters_.erase(at);
  }

  const int rank_;
  Communicator& communicator_;
  const uint64_t seed_;
  RandomStream common_;  // the same on all ranks
  RandomStream own_;
  std::vector<std::pair<int64_t, std::unique_ptr<Exercise>>> started_;
  std::vector<std::unique_ptr<Letter>> letters_;
};

TEST_P(CommunicatorConformanceTest, ThousandsOfRandomOperationsGiveWhatAPlainModelGives) {
  for (const uint64_t seed : {11, 12, 13}) {
    SCOPED_TRACE(str("seed ", seed));
    on_all([&](int rank, Communicator& communicator) {
      RandomProgram(rank, communicator, seed).run(1000);
    });
  }
}

}  // namespace
}  // namespace cohort::testing
