#include "tests/collective/conformance.h"
#include "tests/collective/exercise.h"

// Groups made of groups.
namespace cohort::testing {
namespace {

int64_t sum_of_ranks(Communicator& group, int64_t value) {
  const Segment segment{&value, &value, 1};
  group.all_reduce({&segment, 1}, DType::kInt64, ReduceOp::kSum);
  return value;
}

TEST_P(CommunicatorConformanceTest, SplitsByColor) {
  on_all([&](int rank, Communicator& communicator) {
    const auto part = communicator.split(rank % 2);
    ASSERT_NE(part, nullptr);
    EXPECT_EQ(part->size(), (size() + 1 - rank % 2) / 2);
    EXPECT_EQ(part->rank(), rank / 2);
    int64_t expected = 0;
    for (int r = rank % 2; r < size(); r += 2) expected += r + 1;
    EXPECT_EQ(sum_of_ranks(*part, rank + 1), expected);
    EXPECT_EQ(sum_of_ranks(communicator, 1), size()) << "the group it came from goes on";
    EXPECT_EQ(sum_of_ranks(*part, 1), part->size());
    // A part is a group like any other.
    for (size_t kind = 0; kind < 9; ++kind) {
      Exercise exercise(part->rank(), part->size(), 40 + kind, kind, 5000);
      part->run(exercise.call());
      exercise.check();
    }
    communicator.barrier();  // nobody leaves its part before the others are done
  });
}

TEST_P(CommunicatorConformanceTest, KeysOrderAPartAndRanksBreakTies) {
  on_all([&](int rank, Communicator& communicator) {
    const auto reversed = communicator.split(3, -rank);
    EXPECT_EQ(reversed->size(), size());
    EXPECT_EQ(reversed->rank(), size() - 1 - rank);
    const auto same = communicator.split(0, 5);
    EXPECT_EQ(same->rank(), rank);
    // Odd ranks first.
    const auto mixed = communicator.split(7, rank % 2 == 1 ? 1 : 2);
    EXPECT_EQ(mixed->rank(), rank % 2 == 1 ? rank / 2 : size() / 2 + rank / 2);
    int64_t first = rank;
    mixed->broadcast(&first, &first, sizeof(first), 0);
    EXPECT_EQ(first, size() > 1 ? 1 : 0);
    communicator.barrier();
  });
}

TEST_P(CommunicatorConformanceTest, ANegativeColorStaysOutside) {
  on_all([&](int rank, Communicator& communicator) {
    const auto part = communicator.split(rank == 0 ? -1 : 2);
    if (rank == 0)
      EXPECT_EQ(part, nullptr);
    else
      EXPECT_EQ(sum_of_ranks(*part, 1), size() - 1);
    EXPECT_EQ(communicator.split(-5), nullptr);
    communicator.barrier();
  });
}

TEST_P(CommunicatorConformanceTest, PartsAreSplitAgain) {
  on_all([&](int rank, Communicator& communicator) {
    const auto half = communicator.split(rank < (size() + 1) / 2 ? 0 : 1);
    const auto quarter = half->split(half->rank() % 2);
    int64_t members = 1;
    EXPECT_EQ(sum_of_ranks(*quarter, members), quarter->size());
    EXPECT_EQ(quarter->size(), (half->size() + 1 - half->rank() % 2) / 2);
    half->barrier();
    communicator.barrier();
  });
}

TEST_P(CommunicatorConformanceTest, PartsAndTheirOriginWorkAtOnce) {
  on_all([&](int rank, Communicator& communicator) {
    const auto row = communicator.split(rank / 2, rank),
               column = communicator.split(rank % 2, rank);
    for (uint64_t round = 0; round < 10; ++round) {
      Exercise a(row->rank(), row->size(), round, 1, 3000);
      Exercise b(column->rank(), column->size(), round, 1 + round % 8, 3000);
      Exercise c(rank, size(), round, 5, 3000);
      const int64_t in_row = row->start(a.call());
      const int64_t in_column = column->start(b.call());
      communicator.run(c.call());
      column->wait(in_column);
      row->wait(in_row);
      a.check();
      b.check();
      c.check();
    }
    communicator.barrier();
  });
}

TEST_P(CommunicatorConformanceTest, MessagesOfAPartStayInIt) {
  if (size() < 2) return;
  on_all([&](int rank, Communicator& communicator) {
    const auto twin = communicator.split(0);
    const char here = 'h', there = 't';
    char in_twin = 0, in_origin = 0;
    if (rank == 0) {
      const int64_t first = twin->start_send({&there, 1, 1});
      communicator.send(&here, 1, 1);
      twin->wait(first);
    } else if (rank == 1) {
      communicator.receive(&in_origin, 1);
      twin->receive(&in_twin, 1);
      EXPECT_EQ(in_origin, 'h');
      EXPECT_EQ(in_twin, 't');
    }
    communicator.barrier();
  });
}

TEST_P(CommunicatorConformanceTest, APartThatEndsLeavesTheOthersAlone) {
  on_all([&](int rank, Communicator& communicator) {
    auto ended = communicator.split(0), other = communicator.split(1);
    if (rank == size() - 1) ended->abort(Error(Code::kAborted, "enough of this part"));
    const Error error = error_of([&] {
      while (true) ended->barrier();
    });
    EXPECT_EQ(error.code(), Code::kAborted);
    EXPECT_EQ(sum_of_ranks(*other, 1), size());
    EXPECT_EQ(sum_of_ranks(communicator, 1), size());
    ended = nullptr;
    EXPECT_EQ(sum_of_ranks(*other, 1), size());
    communicator.barrier();
  });
}

// As where the job has failed, of which every process hears.
TEST_P(CommunicatorConformanceTest, AnAbortReachesThePartsOfARankAndTheirParts) {
  on_all([&](int rank, Communicator& communicator) {
    const auto part = communicator.split(rank % 2), of_part = part->split(0);
    const Error lost(Code::kUnavailable, "worker:9 has fallen silent", "worker:9");
    const auto expect_lost = [&](const auto& call) {
      const Error error = error_of(call);
      EXPECT_EQ(error.code(), lost.code()) << error.what();
      EXPECT_EQ(error.message(), lost.message());
      EXPECT_EQ(error.peer(), lost.peer());
    };
    communicator.barrier();
    // Who is in a part with the last rank waits there.
    const int last = size() - 1;
    Communicator& waiting = rank % 2 == last % 2 ? *of_part : communicator;
    if (rank != last) expect_lost([&] { waiting.barrier(); });
    communicator.abort(lost);
    communicator.abort(Error(Code::kCancelled, "and again"));
    for (Communicator* group : {&communicator, part.get(), of_part.get()}) {
      expect_lost([&] { group->barrier(); });
      expect_lost([&] { group->split(0); });
    }
  });
}

TEST_P(CommunicatorConformanceTest, AMistakeLeavesPartsAlone) {
  if (size() == 1) return;
  on_all([&](int rank, Communicator& communicator) {
    const auto part = communicator.split(0);
    const Error error = error_of([&] { communicator.barrier(rank == 0 ? 1 : 2); });
    EXPECT_EQ(error.code(), Code::kInvalidArgument) << error.what();
    EXPECT_EQ(sum_of_ranks(*part, 1), size());
  });
}

}  // namespace
}  // namespace cohort::testing
