#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "tests/collective/conformance.h"

// Mistakes are errors on all ranks, never wrong numbers; a group ends for all.
namespace cohort::testing {
namespace {

// Of one rank's calls: ranks that agree may begin, before they hear of the one that does not.
std::vector<char>& memory() {
  thread_local std::vector<char> memory(1 << 16);
  return memory;
}

std::span<const int64_t> keep(std::vector<int64_t> sizes) {
  static std::mutex mutex;
  static std::vector<std::unique_ptr<std::vector<int64_t>>> kept;
  const std::lock_guard lock(mutex);
  kept.push_back(std::make_unique<std::vector<int64_t>>(std::move(sizes)));
  return *kept.back();
}

Call all_reduce(std::vector<int64_t> counts, DType dtype = DType::kFloat32,
                ReduceOp op = ReduceOp::kSum) {
  static std::mutex mutex;
  static std::vector<std::unique_ptr<std::vector<Segment>>> kept;
  const std::lock_guard lock(mutex);
  kept.push_back(std::make_unique<std::vector<Segment>>());
  for (const int64_t count : counts)
    kept.back()->push_back({memory().data(), memory().data(), count});
  return AllReduceCall{*kept.back(), dtype, op};
}

// Of one element, without memory for it.
Call all_reduce_of_nothing() {
  static const Segment nothing{nullptr, nullptr, 1};
  return AllReduceCall{{&nothing, 1}, DType::kFloat32, ReduceOp::kSum};
}

Call reduce(int64_t count, int root, DType dtype = DType::kFloat32, ReduceOp op = ReduceOp::kSum) {
  return ReduceCall{memory().data(), memory().data(), count, dtype, op, root};
}
Call broadcast(int64_t bytes, int root) {
  return BroadcastCall{memory().data(), memory().data(), bytes, root};
}
Call reduce_scatter(std::vector<int64_t> counts) {
  return ReduceScatterCall{memory().data(), memory().data(), keep(std::move(counts)),
                           DType::kFloat32, ReduceOp::kSum};
}
Call all_gather(std::vector<int64_t> bytes) {
  return AllGatherCall{memory().data(), memory().data(), keep(std::move(bytes))};
}
Call gather(std::vector<int64_t> bytes, int root) {
  return GatherCall{memory().data(), memory().data(), keep(std::move(bytes)), root};
}
Call scatter(std::vector<int64_t> bytes, int root) {
  return ScatterCall{memory().data(), memory().data(), keep(std::move(bytes)), root};
}
Call all_to_all(std::vector<int64_t> send_bytes, std::vector<int64_t> receive_bytes) {
  return AllToAllCall{memory().data(), keep(std::move(send_bytes)), memory().data() + 4096,
                      keep(std::move(receive_bytes))};
}

// Sizes that are `usual`, but for the last.
std::vector<int64_t> sizes(int size, int64_t usual, int64_t last) {
  std::vector<int64_t> sizes(static_cast<size_t>(size), usual);
  sizes.back() = last;
  return sizes;
}

// After its group has ended with `error`, nothing of a communicator works any more.
void expect_ended(Communicator& communicator, const Error& error) {
  char byte = 0;
  const auto ended = [&](const auto& call) {
    const Error again = error_of(call);
    EXPECT_EQ(again.code(), error.code());
    EXPECT_EQ(again.message(), error.message());
  };
  ended([&] { communicator.barrier(); });
  ended([&] { communicator.run(all_reduce({3})); });
  ended([&] { communicator.wait(communicator.start(all_reduce({3}))); });
  ended([&] { communicator.split(0); });
  if (communicator.size() == 1) return;
  const int other = (communicator.rank() + 1) % communicator.size();
  ended([&] { communicator.send(&byte, 1, other); });
  ended([&] { communicator.receive(&byte, 1, other); });
}

Error refused(Communicator& communicator, const Call& call) {
  const Error error = error_of([&] { communicator.run(call); });
  EXPECT_EQ(error.code(), Code::kInvalidArgument) << error.what();
  return error;
}

// Makes calls for the rank whose thread calls it.
using Pairs = std::function<std::vector<std::pair<Call, Call>>()>;

// Rank `odd_rank` of new groups makes the second call of a pair, the others the first: all get an
// error that names both, and their group has ended.
void expect_mismatch(const Group& group, const Pairs& pairs, size_t pair, int odd_rank) {
  on_ranks(group, [&](int rank, Communicator& communicator) {
    const auto [usual, odd] = pairs()[pair];
    SCOPED_TRACE(str(describe(odd), " on rank ", odd_rank, ", ", describe(usual), " elsewhere"));
    communicator.barrier();
    const Error error = refused(communicator, rank == odd_rank ? odd : usual);
    for (const std::string& part : {std::string("the ranks of a group must make the same calls, "
                                                "but in its collective 2 rank "),
                                    describe(odd), describe(usual), str("rank ", odd_rank)})
      EXPECT_NE(error.message().find(part), std::string::npos) << error.message();
    expect_ended(communicator, error);
  });
}

}  // namespace

TEST_P(CommunicatorConformanceTest, DifferentCallsAreNamedOnAllRanks) {
  if (size() == 1) return;
  const int n = size();
  const auto pairs = [n]() -> std::vector<std::pair<Call, Call>> {
    return {
        {all_reduce({8}), all_reduce({7})},
        {all_reduce({6, 2}), all_reduce({2, 6})},
        {all_reduce({8}), all_reduce({4, 4})},
        {all_reduce({0}), all_reduce({8000})},
        {all_reduce({8000}), all_reduce({8001})},
        {all_reduce({2}), all_reduce({2}, DType::kInt32)},
        {all_reduce({2}), all_reduce({2}, DType::kFloat32, ReduceOp::kMax)},
        {all_reduce({8000}), reduce(8000, 0)},
        {reduce(4, 0), reduce(4, n - 1)},
        {reduce(4, 0), reduce(4, 0, DType::kFloat32, ReduceOp::kMin)},
        {reduce(4, 0), BarrierCall{}},
        {broadcast(4, 0), broadcast(4, n - 1)},
        {broadcast(4, 0), broadcast(8, 0)},
        {broadcast(60'000, n - 1), broadcast(4, n - 1)},
        {broadcast(8, 0), BroadcastCall{memory().data(), memory().data(), 8, 0, "a size"}},
        {broadcast(4, 0), all_gather(sizes(n, 4, 4))},
        {BarrierCall{}, broadcast(4, 0)},
        {BarrierCall{1}, BarrierCall{2}},
        {BarrierCall{}, all_to_all(sizes(n, 4, 4), sizes(n, 4, 4))},
        {all_gather(sizes(n, 4, 4)), all_gather(sizes(n, 4, 8))},
        {all_gather(sizes(n, 8, 8)),
         AllGatherCall{memory().data(), memory().data(), keep(sizes(n, 8, 8)), "sizes"}},
        {gather(sizes(n, 4, 4), 0), gather(sizes(n, 4, 4), n - 1)},
        {gather(sizes(n, 4, 4), 0), gather(sizes(n, 4, 8), 0)},
        {gather(sizes(n, 4, 4), 0), scatter(sizes(n, 4, 4), 0)},
        {scatter(sizes(n, 4, 4), 0), scatter(sizes(n, 8, 4), 0)},
        {scatter(sizes(n, 4, 4), 0), scatter(sizes(n, 4, 4), n - 1)},
        {reduce_scatter(sizes(n, 3, 4)), reduce_scatter(sizes(n, 4, 3))},
        {reduce_scatter(sizes(n, 900, 900)), all_reduce({900 * n})},
    };
  };
  for (size_t i = 0; i < pairs().size(); ++i)
    expect_mismatch(make(), pairs, i, static_cast<int>(i) % size());
}

// Whatever a split tells each rank of the others has some size.
TEST_P(CommunicatorConformanceTest, ASplitIsNoAllGatherOfAsManyBytes) {
  if (size() == 1) return;
  for (const int64_t bytes : {4, 8, 12, 16})
    on_all([&](int rank, Communicator& communicator) {
      communicator.barrier();
      const Error error = error_of([&] {
        if (rank == 0)
          communicator.split(0);
        else
          communicator.run(all_gather(sizes(size(), bytes, bytes)));
      });
      EXPECT_EQ(error.code(), Code::kInvalidArgument) << error.what();
      EXPECT_NE(error.message().find("for a split"), std::string::npos) << error.message();
      expect_ended(communicator, error);
    });
}

TEST_P(CommunicatorConformanceTest, SizesThatTwoRanksExchangeMustAgree) {
  if (size() == 1) return;
  on_all([&](int rank, Communicator& communicator) {
    // Rank 0 sends rank 1 half of what it expects.
    std::vector<int64_t> out(static_cast<size_t>(size()), 8), in = out;
    if (rank == 0) out[1] = 4;
    std::vector<char> source(1000, 'x'), target(1000);
    communicator.barrier();
    const Error error = refused(communicator, AllToAllCall{source.data(), out, target.data(), in});
    for (const std::string part :
         {"in its collective 2", "rank 0", "rank 1", "an all-to-all that sends"})
      EXPECT_NE(error.message().find(part), std::string::npos) << error.message();
    expect_ended(communicator, error);
  });
}

TEST_P(CommunicatorConformanceTest, CallsInAnotherOrderGiveNoWrongNumbers) {
  if (size() == 1) return;
  for (const int64_t count : {1, 50'000})
    on_all([&](int rank, Communicator& communicator) {
      const auto n = static_cast<size_t>(count);
      std::vector<float> a(n, static_cast<float>(rank + 1)), b(n, static_cast<float>(10 * rank));
      const Segment segment{a.data(), a.data(), count};
      const auto reduce_a = [&] {
        communicator.all_reduce({&segment, 1}, DType::kFloat32, ReduceOp::kSum);
      };
      const auto broadcast_b = [&] { communicator.broadcast(b.data(), b.data(), count * 4, 0); };
      const Error error = error_of([&] {
        if (rank == 0)
          reduce_a(), broadcast_b();
        else
          broadcast_b(), reduce_a();
      });
      EXPECT_EQ(error.code(), Code::kInvalidArgument) << error.what();
      expect_ended(communicator, error);
    });
}

TEST_P(CommunicatorConformanceTest, AMismatchAfterHundredsOfGoodCallsIsFound) {
  if (size() == 1) return;
  on_all([&](int rank, Communicator& communicator) {
    for (int i = 0; i < 500; ++i) {
      int64_t value = rank;
      const Segment segment{&value, &value, 1};
      communicator.all_reduce({&segment, 1}, DType::kInt64, ReduceOp::kSum);
      ASSERT_EQ(value, size() * (size() - 1) / 2);
    }
    refused(communicator, rank == 0 ? all_reduce({8}) : reduce(8, 0));
  });
}

TEST_P(CommunicatorConformanceTest, WrongCallsAreRefusedThoughAllAgree) {
  const std::pair<Call, std::string> calls[] = {
      {all_reduce({2}, DType::kBool), "bool"},
      {all_reduce({2}, DType::kInt64, ReduceOp::kMean), "floating dtype, got int64"},
      {all_reduce({2}, DType::kFloat32, ReduceOp::kBitAnd), "integer dtype, got float32"},
      {all_reduce({2}, DType::kFloat32, static_cast<ReduceOp>(77)), "no reduce op 77"},
      {all_reduce({2, -1}), "-1 elements"},
      {all_reduce_of_nothing(), "not defined"},
      {ReduceCall{nullptr, nullptr, 1, DType::kFloat32, ReduceOp::kSum, 0}, "not defined"},
      {ReduceScatterCall{nullptr, nullptr, keep(sizes(size(), 1, 1)), DType::kFloat32,
                         ReduceOp::kSum},
       "not defined"},
      {reduce(-3, 0), "-3 elements"},
      {reduce(3, size()), str("from 0 to ", size() - 1)},
      {reduce_scatter(sizes(size() + 1, 4, 4)), str(size() + 1, " sizes for ", size(), " ranks")},
      {all_gather(sizes(size(), 4, -4)), "-4 bytes"},
      {all_gather(sizes(size() + 1, 4, 4)), str(size() + 1, " sizes for ", size(), " ranks")},
      {gather(sizes(size(), 4, 4), -1), str("from 0 to ", size() - 1)},
      {scatter(sizes(size(), 4, 4), size()), str("from 0 to ", size() - 1)},
      {scatter(sizes(size() + 1, 4, 4), 0), str(size() + 1, " sizes for ", size(), " ranks")},
      {broadcast(4, size()), str("from 0 to ", size() - 1)},
      {broadcast(4, -1), str("from 0 to ", size() - 1)},
      {broadcast(-4, 0), "negative"},
      {BroadcastCall{nullptr, nullptr, 4, 0}, "of 4 bytes is null"},
      {AllGatherCall{nullptr, nullptr, keep(sizes(size(), 4, 4))}, "source of 4 bytes is null"},
      {AllToAllCall{nullptr, keep(sizes(size(), 4, 4)), nullptr, keep(sizes(size(), 4, 4))},
       str("source of ", 4 * size(), " bytes is null")},
      {AllToAllCall{nullptr, keep(sizes(size() + 1, 0, 0)), nullptr, keep(sizes(size(), 0, 0))},
       str(size() + 1, " sizes for ", size(), " ranks")},
  };
  for (const auto& [call, part] : calls) {
    SCOPED_TRACE(describe(call));
    on_all([&](int /*rank*/, Communicator& communicator) {
      const Error error = refused(communicator, call);
      EXPECT_NE(error.message().find(part), std::string::npos) << error.message();
      expect_ended(communicator, error);
    });
  }
}

TEST_P(CommunicatorConformanceTest, AMistakeOfOneRankEndsTheGroupForAllAndNamesIt) {
  if (size() == 1) return;
  const auto pairs = [n = size()]() -> std::vector<std::pair<Call, Call>> {
    return {
        {broadcast(4, 0), broadcast(4, -1)},
        {all_reduce({5}), all_reduce({5}, DType::kBool)},
        {all_reduce({1}), all_reduce_of_nothing()},
        {all_gather(sizes(n, 4, 4)), all_gather(sizes(n + 1, 4, 4))},
        {all_to_all(sizes(n, 4, 4), sizes(n, 4, 4)),
         all_to_all(sizes(n + 1, 4, 4), sizes(n, 4, 4))},
        {all_to_all(sizes(n, 4, 4), sizes(n, 4, 4)), all_to_all(sizes(n, 4, 4), sizes(n, -4, 4))},
    };
  };
  for (size_t i = 0; i < pairs().size(); ++i) {
    on_all([&](int rank, Communicator& communicator) {
      const auto [usual, wrong] = pairs()[i];
      SCOPED_TRACE(describe(wrong));
      const Error error = refused(communicator, rank == size() - 1 ? wrong : usual);
      for (const std::string& part : {describe(wrong), str("rank ", size() - 1)})
        EXPECT_NE(error.message().find(part), std::string::npos) << error.message();
      expect_ended(communicator, error);
    });
  }
}

TEST_P(CommunicatorConformanceTest, AnErrorOfAStartedOperationComesWithItsWait) {
  if (size() == 1) return;
  on_all([&](int rank, Communicator& communicator) {
    std::vector<float> data(100, 1);
    const Segment good{data.data(), data.data(), 100};
    const int64_t first =
        communicator.start_all_reduce({&good, 1}, DType::kFloat32, ReduceOp::kSum);
    const int64_t second = communicator.start(all_reduce({rank == 0 ? 2 : 3}));
    const int64_t third = communicator.start(BarrierCall{});
    EXPECT_EQ(error_of([&] { communicator.wait(second); }).code(), Code::kInvalidArgument);
    communicator.wait(first);
    for (const float x : data) ASSERT_EQ(x, static_cast<float>(size()));
    EXPECT_EQ(error_of([&] { communicator.wait(third); }).code(), Code::kInvalidArgument)
        << "the group has ended";
    EXPECT_EQ(error_of([&] { communicator.barrier(); }).code(), Code::kInvalidArgument);
  });
}

TEST_P(CommunicatorConformanceTest, WhatWasStartedIsWaitedForOnce) {
  on_all([&](int, Communicator& communicator) {
    const int64_t operation = communicator.start(BarrierCall{});
    communicator.wait(operation);
    const auto expect_unknown = [&](const auto& call) {
      const Error error = error_of(call);
      EXPECT_EQ(error.code(), Code::kInvalidArgument) << error.what();
      EXPECT_NE(error.message().find("waited for already"), std::string::npos) << error.message();
    };
    expect_unknown([&] { communicator.wait(operation); });
    expect_unknown([&] { communicator.is_done(operation); });
    communicator.barrier();
  });
}

TEST_P(CommunicatorConformanceTest, AMistakeInWhatIsStartedComesWithItsWait) {
  on_all([&](int, Communicator& communicator) {
    const int64_t operation = communicator.start(all_reduce({4}, DType::kBool));
    EXPECT_EQ(error_of([&] { communicator.wait(operation); }).code(), Code::kInvalidArgument);
  });
}

// How a rank may wait for others.
enum class Waiting { kBarrier, kReduction, kStarted, kReceive, kSend, kSplit };
constexpr Waiting kWaitings[] = {Waiting::kBarrier, Waiting::kReduction, Waiting::kStarted,
                                 Waiting::kReceive, Waiting::kSend,      Waiting::kSplit};

void wait_for_others(Communicator& communicator, Waiting waiting, int other) {
  std::vector<float> data(20'000, 1);
  const Segment segment{data.data(), data.data(), 20'000};
  switch (waiting) {
    case Waiting::kBarrier:
      return communicator.barrier();
    case Waiting::kReduction:
      return communicator.all_reduce({&segment, 1}, DType::kFloat32, ReduceOp::kSum);
    case Waiting::kStarted: {
      const int64_t first =
          communicator.start_all_reduce({&segment, 1}, DType::kFloat32, ReduceOp::kSum);
      communicator.start(BarrierCall{});
      communicator.wait(first);
      return;
    }
    case Waiting::kReceive:
      communicator.receive(data.data(), 80'000);
      return;
    case Waiting::kSend:
      return communicator.send(data.data(), 80'000, other);
    case Waiting::kSplit:
      communicator.split(0);
      return;
  }
}

TEST_P(CommunicatorConformanceTest, AnAbortReachesRanksThatWaitHoweverTheyWait) {
  for (const Waiting waiting : kWaitings) {
    SCOPED_TRACE(static_cast<int>(waiting));
    on_all([&](int rank, Communicator& communicator) {
      communicator.barrier();
      const int last = size() - 1;
      if (rank == last) {
        communicator.abort(Error(Code::kAborted, "the last rank gave up"));
        communicator.abort(Error(Code::kCancelled, "and again"));
      } else {
        const Error error = error_of([&] { wait_for_others(communicator, waiting, last); });
        EXPECT_EQ(error.code(), Code::kAborted) << error.what();
        EXPECT_EQ(error.message(), "the last rank gave up");
      }
      expect_ended(communicator, Error(Code::kAborted, "the last rank gave up"));
    });
  }
}

TEST_P(CommunicatorConformanceTest, AnotherThreadAbortsARankThatWaits) {
  if (size() == 1) return;
  on_all([&](int rank, Communicator& communicator) {
    communicator.barrier();
    if (rank != 0) {
      EXPECT_EQ(error_of([&] { communicator.barrier(); }).message(), "from outside");
      return;
    }
    std::thread aborting([&] { communicator.abort(Error(Code::kCancelled, "from outside")); });
    char byte = 0;
    EXPECT_EQ(error_of([&] { communicator.receive(&byte, 1); }).message(), "from outside");
    aborting.join();
  });
}

TEST_P(CommunicatorConformanceTest, ARankThatLeavesFreesTheOthers) {
  if (size() == 1) return;
  for (const Waiting waiting : kWaitings) {
    SCOPED_TRACE(static_cast<int>(waiting));
    std::vector<float> data(4, 1);
    const Segment segment{data.data(), nullptr, 4};
    Group group = make();
    on_ranks(group, [&](int rank, Communicator& communicator) {
      communicator.barrier();
      const int last = size() - 1;
      if (rank == last) {
        // Unfinished operations of its own do not keep it.
        if (waiting == Waiting::kStarted)
          for (int i = 0; i < 2; ++i)
            communicator.start_all_reduce({&segment, 1}, DType::kFloat32, ReduceOp::kSum);
        communicator.start_receive({data.data(), 4, 0, 1234});
        for (auto& own : group)
          if (own.get() == &communicator) return own.reset();
      }
      const Error error = error_of([&] {
        while (waiting == Waiting::kStarted)
          communicator.all_reduce({&segment, 1}, DType::kFloat32, ReduceOp::kSum);
        wait_for_others(communicator, waiting, last);
      });
      EXPECT_EQ(error.code(), Code::kUnavailable) << error.what();
      EXPECT_NE(error.message().find(str("rank ", last)), std::string::npos) << error.message();
      EXPECT_EQ(error_of([&] { communicator.barrier(); }).code(), Code::kUnavailable);
    });
  }
}

TEST_P(CommunicatorConformanceTest, RanksLeaveAtOnceAfterTheirLastCall) {
  for (int attempt = 0; attempt < 5; ++attempt)
    for (const int64_t count : {10, 300'000}) {
      Group group = make();
      std::vector<std::thread> threads;
      for (auto& own : group)
        threads.emplace_back([&, communicator = std::move(own)]() mutable {
          std::vector<float> data(static_cast<size_t>(count), 1);
          const Segment segment{data.data(), data.data(), count};
          try {
            communicator->all_reduce({&segment, 1}, DType::kFloat32, ReduceOp::kSum);
          } catch (const Error& error) {
            ADD_FAILURE() << error.what();
          }
          communicator = nullptr;
          EXPECT_EQ(data,
                    std::vector<float>(static_cast<size_t>(count), static_cast<float>(size())));
        });
      for (auto& thread : threads) thread.join();
    }
}

// An abort may come at any moment; nobody may hang, and a rank that got its result got all of it.
TEST_P(CommunicatorConformanceTest, AnAbortAtAnyMomentIsSeenByAll) {
  for (int attempt = 0; attempt < 12; ++attempt)
    on_all([&](int rank, Communicator& communicator) {
      std::atomic<int> rounds = 0;
      std::thread aborting;
      if (rank == 0)
        aborting = std::thread([&] {
          while (rounds < attempt / 2) std::this_thread::yield();
          communicator.abort(Error(Code::kAborted, "stop"));
        });
      const int64_t count = attempt % 2 == 0 ? 500 : 50'000;
      const Error error = error_of([&] {
        while (true) {
          std::vector<double> data(static_cast<size_t>(count), rank + 1.0);
          const Segment segment{data.data(), data.data(), count};
          communicator.all_reduce({&segment, 1}, DType::kFloat64, ReduceOp::kSum);
          for (const double x : data) ASSERT_EQ(x, size() * (size() + 1) / 2) << "rank " << rank;
          ++rounds;
        }
      });
      EXPECT_EQ(error.code(), Code::kAborted) << error.what();
      if (aborting.joinable()) aborting.join();
    });
}

}  // namespace cohort::testing
