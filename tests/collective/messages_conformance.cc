#include <algorithm>
#include <string>

#include "tests/collective/conformance.h"
#include "tests/collective/exercise.h"

// Messages between two ranks.
namespace cohort::testing {
namespace {

std::vector<uint8_t> content(int from, int to, size_t bytes) {
  std::vector<uint8_t> content(bytes);
  for (size_t i = 0; i < bytes; ++i)
    content[i] = static_cast<uint8_t>(i * 13 + static_cast<size_t>(from * 16 + to));
  return content;
}

TEST_P(CommunicatorConformanceTest, AMessageArrivesWhole) {
  if (size() == 1) return;
  on_all([&](int rank, Communicator& communicator) {
    for (const size_t bytes : {0u, 1u, 1000u, 16'384u, 70'000u, 3'000'000u}) {
      const int last = size() - 1;
      const auto sent = content(0, last, bytes);
      if (rank == 0) {
        communicator.send(sent.data(), static_cast<int64_t>(bytes), last, 7);
      } else if (rank == last) {
        std::vector<uint8_t> memory(bytes + 10, 99);
        const Received received =
            communicator.receive(memory.data(), static_cast<int64_t>(memory.size()), 0, 7);
        EXPECT_EQ(received.source, 0);
        EXPECT_EQ(received.tag, 7);
        EXPECT_EQ(received.bytes, static_cast<int64_t>(bytes));
        ASSERT_TRUE(std::equal(sent.begin(), sent.end(), memory.begin()));
        EXPECT_EQ(memory[bytes], 99) << "what follows is left alone";
      }
    }
  });
}

TEST_P(CommunicatorConformanceTest, AllPairsExchangeMessagesAtOnce) {
  on_all([&](int rank, Communicator& communicator) {
    for (const size_t bytes : {4u, 100'000u}) {
      std::vector<std::vector<uint8_t>> sent, got;
      std::vector<int64_t> operations;
      for (int peer = 0; peer < size(); ++peer) {
        sent.push_back(content(rank, peer, bytes));
        got.emplace_back(bytes);
        if (peer == rank) continue;
        operations.push_back(
            communicator.start_send({sent.back().data(), static_cast<int64_t>(bytes), peer}));
      }
      for (int peer = 0; peer < size(); ++peer)
        if (peer != rank)
          operations.push_back(communicator.start_receive(
              {got[static_cast<size_t>(peer)].data(), static_cast<int64_t>(bytes), peer}));
      std::reverse(operations.begin(), operations.end());
      for (const int64_t operation : operations) communicator.wait(operation);
      for (int peer = 0; peer < size(); ++peer)
        if (peer != rank) {
          ASSERT_EQ(got[static_cast<size_t>(peer)], content(peer, rank, bytes));
        }
    }
  });
}

TEST_P(CommunicatorConformanceTest, AnySourceTellsWhoSent) {
  on_all([&](int rank, Communicator& communicator) {
    if (rank != 0) return communicator.send(&rank, sizeof(rank), 0, 100 + rank);
    std::vector<int> seen;
    for (int k = 1; k < size(); ++k) {
      int value = -1;
      const Received received = communicator.receive(&value, sizeof(value));
      EXPECT_EQ(received.source, value);
      EXPECT_EQ(received.tag, 100 + value);
      EXPECT_EQ(received.bytes, static_cast<int64_t>(sizeof(value)));
      seen.push_back(value);
    }
    std::sort(seen.begin(), seen.end());
    for (int k = 1; k < size(); ++k) EXPECT_EQ(seen[static_cast<size_t>(k - 1)], k);
  });
}

TEST_P(CommunicatorConformanceTest, TagsAreStreamsOfTheirOwnAndKeepTheirOrder) {
  if (size() == 1) return;
  constexpr int kEach = 50;
  on_all([&](int rank, Communicator& communicator) {
    std::vector<int> values(2 * kEach);
    std::vector<int64_t> operations;
    if (rank == 0) {
      for (int i = 0; i < 2 * kEach; ++i) {
        values[static_cast<size_t>(i)] = i / 2;
        operations.push_back(communicator.start_send(
            {&values[static_cast<size_t>(i)], sizeof(int), 1, i % 2 == 0 ? 5 : 0}));
      }
      for (const int64_t operation : operations) communicator.wait(operation);
    } else if (rank == 1) {
      for (const int tag : {0, 5})  // the one that was sent second comes first
        for (int i = 0; i < kEach; ++i) {
          int value = -1;
          EXPECT_EQ(communicator.receive(&value, sizeof(value), i % 3 == 0 ? kAnyRank : 0, tag).tag,
                    tag);
          ASSERT_EQ(value, i);
        }
    }
  });
}

TEST_P(CommunicatorConformanceTest, ReceivesAreServedInTheOrderInWhichTheyWereMade) {
  if (size() == 1) return;
  on_all([&](int rank, Communicator& communicator) {
    int values[4] = {0, 1, 2, 3};
    if (rank == 1) {
      int got[4] = {-1, -1, -1, -1};
      const int64_t operations[4] = {
          communicator.start_receive({&got[0], sizeof(int)}),
          communicator.start_receive({&got[1], sizeof(int), 0, kAnyTag}),
          communicator.start_receive({&got[2], sizeof(int), kAnyRank, 3}),
          communicator.start_receive({&got[3], sizeof(int), 0, 3}),
      };
      for (const int i : {3, 0, 2, 1}) communicator.wait(operations[i]);
      for (int i = 0; i < 4; ++i) EXPECT_EQ(got[i], i);
    } else if (rank == 0) {
      for (int& value : values) communicator.send(&value, sizeof(int), 1, 3);
    }
  });
}

TEST_P(CommunicatorConformanceTest, AMessageThatIsTooLongIsRefusedOnBothRanksAndTheGroupLives) {
  if (size() == 1) return;
  on_all([&](int rank, Communicator& communicator) {
    for (const size_t bytes : {9u, 200'000u}) {
      const auto sent = content(0, 1, bytes);
      std::vector<uint8_t> memory(bytes, 99);
      if (rank < 2) {
        const Error error = error_of([&] {
          if (rank == 0)
            communicator.send(sent.data(), static_cast<int64_t>(bytes), 1, 2);
          else
            communicator.receive(memory.data(), static_cast<int64_t>(bytes) - 1, 0);
        });
        EXPECT_EQ(error.code(), Code::kInvalidArgument);
        for (const std::string& part : {str(bytes, " bytes"), str("room for ", bytes - 1)})
          EXPECT_NE(error.message().find(part), std::string::npos) << error.message();
      }
      EXPECT_EQ(memory.back(), 99);
      communicator.barrier();
    }
    if (rank == 0) communicator.send(&rank, sizeof(rank), 1);
    int value = -1;
    if (rank == 1) communicator.receive(&value, sizeof(value), 0);
    communicator.barrier();
  });
}

TEST_P(CommunicatorConformanceTest, WrongMessagesAreRefusedAtOnce) {
  on_all([&](int rank, Communicator& communicator) {
    char byte = 0;
    const int other = (rank + 1) % size();
    const auto refused = [&](const auto& call) {
      EXPECT_EQ(error_of(call).code(), Code::kInvalidArgument);
    };
    refused([&] { communicator.start_send({&byte, 1, rank}); });
    refused([&] { communicator.start_send({&byte, 1, -1}); });
    refused([&] { communicator.start_send({&byte, 1, size()}); });
    refused([&] { communicator.start_receive({&byte, 1, rank}); });
    refused([&] { communicator.start_receive({&byte, 1, size()}); });
    refused([&] { communicator.start_receive({&byte, 1, -2}); });
    if (size() == 1) {
      refused([&] { communicator.start_receive({&byte, 1}); });
    } else {
      refused([&] { communicator.start_send({&byte, -1, other}); });
      refused([&] { communicator.start_send({nullptr, 1, other}); });
      refused([&] { communicator.start_receive({nullptr, 1, other}); });
      refused([&] { communicator.start_send({&byte, 1, other, -1}); });
      refused([&] { communicator.start_receive({&byte, -1, other}); });
      refused([&] { communicator.start_receive({&byte, 1, other, -2}); });
    }
    communicator.barrier();  // the group lives
  });
}

TEST_P(CommunicatorConformanceTest, MessagesPassWhileTheirSenderIsInACollective) {
  if (size() == 1) return;
  on_all([&](int rank, Communicator& communicator) {
    for (const size_t bytes : {10u, 500'000u}) {
      const auto sent = content(0, 1, bytes);
      std::vector<uint8_t> memory(bytes);
      int64_t operation = -1;
      if (rank == 0)
        operation = communicator.start_send({sent.data(), static_cast<int64_t>(bytes), 1});
      if (rank == 1) communicator.receive(memory.data(), static_cast<int64_t>(bytes), 0);
      communicator.barrier();
      if (rank == 0) communicator.wait(operation);
      if (rank == 1) {
        ASSERT_EQ(memory, sent);
      }
    }
  });
}

TEST_P(CommunicatorConformanceTest, MessagesAndCollectivesGoOnTogether) {
  if (size() == 1) return;
  on_all([&](int rank, Communicator& communicator) {
    const int next = (rank + 1) % size(), previous = (rank + size() - 1) % size();
    for (uint64_t round = 0; round < 20; ++round) {
      const size_t bytes = round % 5 == 0 ? 150'000 : 100;
      const auto out = content(rank, next, bytes);
      std::vector<uint8_t> in(bytes);
      Exercise exercise(rank, size(), round, 1 + round % 8, 10'000);
      const int64_t receiving =
          communicator.start_receive({in.data(), static_cast<int64_t>(bytes), previous});
      const int64_t reducing = communicator.start(exercise.call());
      communicator.send(out.data(), static_cast<int64_t>(bytes), next);
      communicator.wait(reducing);
      communicator.wait(receiving);
      exercise.check();
      ASSERT_EQ(in, content(previous, rank, bytes));
    }
  });
}

// In groups of two, so that nobody else is left behind.
TEST_P(CommunicatorConformanceTest, EitherEndOfAMessageMayLeaveAtOnce) {
  on_all([&](int rank, Communicator& communicator) {
    for (int attempt = 0; attempt < 4; ++attempt)
      for (const size_t bytes : {0u, 8u, 300'000u}) {
        auto pair = communicator.split(rank / 2);
        if (pair->size() == 1) continue;
        const auto sent = content(0, 1, bytes);
        if (pair->rank() == 0) {
          pair->send(sent.data(), static_cast<int64_t>(bytes), 1);
          pair = nullptr;
        } else {
          std::vector<uint8_t> memory(bytes);
          pair->receive(memory.data(), static_cast<int64_t>(bytes), 0);
          pair = nullptr;
          ASSERT_EQ(memory, sent);
        }
      }
  });
}

TEST_P(CommunicatorConformanceTest, AMessageIsAwaitedOnce) {
  if (size() == 1) return;
  on_all([&](int rank, Communicator& communicator) {
    char byte = 1;
    if (rank < 2) {
      const int64_t operation = rank == 0 ? communicator.start_send({&byte, 1, 1})
                                          : communicator.start_receive({&byte, 1, 0});
      communicator.wait(operation);
      EXPECT_EQ(error_of([&] { communicator.wait(operation); }).code(), Code::kInvalidArgument);
    }
    communicator.barrier();
  });
}

}  // namespace
}  // namespace cohort::testing
