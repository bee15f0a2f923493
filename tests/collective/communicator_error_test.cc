#include <atomic>
#include <functional>

#include "tests/collective/ranks.h"

namespace cohort::testing {
namespace {

using Work = std::function<void(Communicator&)>;

float g_data[8];  // never touched: every call here is refused

Work reduce(int64_t count, DType dtype = DType::kFloat32, ReduceOp op = ReduceOp::kSum) {
  return [=](Communicator& c) {
    const Segment segment{g_data, g_data, count};
    c.all_reduce({&segment, 1}, dtype, op);
  };
}

Work gather(std::vector<int64_t> bytes) {
  return [=](Communicator& c) { c.all_gather(g_data, g_data, bytes); };
}

Work broadcast(int64_t bytes, int root) {
  return [=](Communicator& c) { c.broadcast(g_data, g_data, bytes, root); };
}

Work barrier() {
  return [](Communicator& c) { c.barrier(); };
}

// Rank 1 of three does `odd`, the others `usual`; all must get the same error, and keep it.
std::string refusal(const Work& usual, const Work& odd) {
  std::vector<std::string> messages(3);
  on_ranks(3, [&](int rank, Communicator& communicator) {
    const Error error = error_of([&] { (rank == 1 ? odd : usual)(communicator); });
    EXPECT_EQ(error.code(), Code::kInvalidArgument) << error.what();
    EXPECT_EQ(error_of([&] { communicator.barrier(); }).message(), error.message())
        << "the group has ended";
    messages[static_cast<size_t>(rank)] = error.message();
  });
  EXPECT_EQ(messages[0], messages[1]);
  EXPECT_EQ(messages[0], messages[2]);
  return messages[0];
}

TEST(CommunicatorErrorTest, DifferentCallsAreNamedOnAllRanks) {
  EXPECT_EQ(refusal(reduce(8), reduce(7)),
            "the ranks of a group must make the same calls, but rank 0 asks for an all-reduce "
            "(sum) of 1 float32 tensors with 8 elements and rank 1 for an all-reduce (sum) of 1 "
            "float32 tensors with 7 elements");
  EXPECT_NE(refusal(reduce(2), reduce(2, DType::kInt32)).find("1 int32"), std::string::npos);
  EXPECT_NE(refusal(reduce(2), reduce(2, DType::kFloat32, ReduceOp::kMax)).find("(max)"),
            std::string::npos);
  EXPECT_EQ(refusal(broadcast(4, 0), broadcast(4, 2)),
            "the ranks of a group must make the same calls, but rank 0 asks for a broadcast of 4 "
            "bytes from rank 0 and rank 1 for a broadcast of 4 bytes from rank 2");
  EXPECT_NE(refusal(broadcast(4, 0), broadcast(8, 0)).find("8 bytes"), std::string::npos);
  EXPECT_NE(refusal(gather({4, 4, 4}), gather({4, 8, 4})).find("4, 8, 4 bytes"), std::string::npos);
  EXPECT_EQ(refusal(barrier(), broadcast(4, 0)),
            "the ranks of a group must make the same calls, but rank 0 asks for a barrier and rank "
            "1 for a broadcast of 4 bytes from rank 0");
}

TEST(CommunicatorErrorTest, WrongCallsAreRefusedThoughAllAgree) {
  const auto refused = [](const Work& work) { return refusal(work, work); };
  EXPECT_NE(refused(reduce(2, DType::kBool)).find("bool"), std::string::npos);
  EXPECT_NE(refused(reduce(2, DType::kInt64, ReduceOp::kMean)).find("floating dtype, got int64"),
            std::string::npos);
  EXPECT_NE(refused(reduce(-1)).find("-1 elements"), std::string::npos);
  EXPECT_NE(refused(gather({4, 4})).find("2 sizes for 3 ranks"), std::string::npos);
  EXPECT_NE(refused(gather({4, -4, 4})).find("a part has -4"), std::string::npos);
  EXPECT_NE(refused(broadcast(4, 3)).find("from 0 to 2"), std::string::npos);
  EXPECT_NE(refused(broadcast(4, -1)).find("from 0 to 2"), std::string::npos);
}

TEST(CommunicatorErrorTest, ARankAloneIsRefusedTheSame) {
  const auto alone = make_in_process_communicators(1);
  EXPECT_EQ(error_of([&] { reduce(2, DType::kInt32, ReduceOp::kMean)(*alone[0]); }).code(),
            Code::kInvalidArgument);
}

TEST(CommunicatorErrorTest, AbortFreesWaitingRanksWithTheFirstError) {
  on_ranks(3, [](int rank, Communicator& communicator) {
    if (rank == 2) {
      communicator.abort(Error(Code::kAborted, "rank 2 gave up"));
      communicator.abort(Error(Code::kAborted, "and again"));
      return;
    }
    for (int i = 0; i < 2; ++i)
      EXPECT_EQ(error_of([&] { communicator.barrier(); }).message(), "rank 2 gave up");
  });
}

TEST(CommunicatorErrorTest, AnErrorOfAStartedOperationComesWithItsWait) {
  on_ranks(2, [](int rank, Communicator& communicator) {
    const Segment good{g_data, nullptr, 4}, bad{g_data, g_data, rank == 0 ? 2 : 3};
    const int64_t first =
        communicator.start_all_reduce({&good, 1}, DType::kFloat32, ReduceOp::kSum);
    const int64_t second =
        communicator.start_all_reduce({&bad, 1}, DType::kFloat32, ReduceOp::kSum);
    const int64_t third =
        communicator.start_all_reduce({&good, 1}, DType::kFloat32, ReduceOp::kSum);
    EXPECT_EQ(error_of([&] { communicator.wait(second); }).code(), Code::kInvalidArgument);
    communicator.wait(first);
    EXPECT_EQ(error_of([&] { communicator.wait(third); }).code(), Code::kInvalidArgument)
        << "the group has ended";
    EXPECT_EQ(error_of([&] { communicator.barrier(); }).code(), Code::kInvalidArgument);
  });
}

TEST(CommunicatorErrorTest, AnOperationIsAwaitedOnce) {
  on_ranks(2, [](int /*rank*/, Communicator& communicator) {
    const Segment segment{g_data, nullptr, 4};
    const int64_t operation =
        communicator.start_all_reduce({&segment, 1}, DType::kFloat32, ReduceOp::kSum);
    communicator.wait(operation);
    EXPECT_EQ(error_of([&] { communicator.wait(operation); }).code(), Code::kInvalidArgument);
    EXPECT_EQ(error_of([&] { communicator.wait(99); }).code(), Code::kInvalidArgument);
  });
}

TEST(CommunicatorErrorTest, AbortFreesOperationsInTheBackground) {
  on_ranks(3, [](int rank, Communicator& communicator) {
    if (rank == 1) return communicator.abort(Error(Code::kCancelled, "enough"));
    const Segment segment{g_data, nullptr, 4};
    const int64_t first =
        communicator.start_all_reduce({&segment, 1}, DType::kFloat32, ReduceOp::kSum);
    const int64_t second =
        communicator.start_all_reduce({&segment, 1}, DType::kFloat32, ReduceOp::kSum);
    EXPECT_EQ(error_of([&] { communicator.wait(second); }).code(), Code::kCancelled);
    EXPECT_EQ(error_of([&] { communicator.wait(first); }).code(), Code::kCancelled);
  });
}

TEST(CommunicatorErrorTest, ARankThatLeavesFreesTheOthers) {
  auto group = make_in_process_communicators(3);
  const Segment segment{g_data, nullptr, 4};
  // Unfinished operations of its own do not keep it.
  group[1]->start_all_reduce({&segment, 1}, DType::kFloat32, ReduceOp::kSum);
  group[1]->start_all_reduce({&segment, 1}, DType::kFloat32, ReduceOp::kSum);
  std::thread waiting([&] {
    const Error error = error_of([&] { group[0]->barrier(); });
    EXPECT_EQ(error.code(), Code::kUnavailable);
    EXPECT_EQ(error.message(), "rank 1 has left its group");
  });
  group[1].reset();
  waiting.join();
  EXPECT_EQ(error_of([&] { group[2]->barrier(); }).code(), Code::kUnavailable);
}

// An abort may come at any moment; nobody may hang, and a rank that got its result got all of it.
TEST(CommunicatorErrorTest, AnAbortAtAnyMomentIsSeenByAll) {
  for (int attempt = 0; attempt < 100; ++attempt) {
    const auto group = make_in_process_communicators(3);
    std::atomic<int> rounds = 0;
    std::thread aborting([&] {
      while (rounds < attempt / 4) std::this_thread::yield();
      group[0]->abort(Error(Code::kAborted, "stop"));
    });
    on_ranks(group, [&](int rank, Communicator& communicator) {
      try {
        while (true) {
          std::vector<double> data(500, rank + 1.0);
          const Segment segment{data.data(), data.data(), 500};
          communicator.all_reduce({&segment, 1}, DType::kFloat64, ReduceOp::kSum);
          for (const double x : data) ASSERT_EQ(x, 6) << "rank " << rank;
          if (rank == 0) ++rounds;
        }
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), Code::kAborted);
      }
    });
    aborting.join();
  }
}

}  // namespace
}  // namespace cohort::testing
