#include <atomic>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "proto/coordination.pb.h"
#include "strategies/cluster/coordination/leader_link.h"
#include "strategies/cluster/coordination/leader_server.h"
#include "strategies/cluster/coordination/limits.h"
#include "strategies/cluster/coordination/roster.h"
#include "strategies/cluster/torchrun_resolver.h"
#include "tests/strategies/cluster/coordination/job.h"
#include "tests/testing/tcp_fault_proxy.h"

// Members whose link to the leader goes dead, without a word from the network.
namespace cohort::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TorchrunResolver resolver(int rank, int size, int port) {
  return TorchrunResolver(environment({{"RANK", std::to_string(rank)},
                                       {"WORLD_SIZE", std::to_string(size)},
                                       {"MASTER_ADDR", "127.0.0.1"},
                                       {"MASTER_PORT", std::to_string(port)}}));
}

class CutLink : public ::testing::Test {
 protected:
  // worker:2 is connected through the cable. Quick, but with room for a busy machine.
  void join_all(milliseconds dead_after) {
    const auto errors = on_threads(3, [&](int rank) {
      members_[rank] = join(resolver(rank, 3, rank == 2 ? cable_.endpoint().port() : job_.port(0)),
                            {.heartbeat = milliseconds(100),
                             .suspect_after = milliseconds(700),
                             .dead_after = dead_after,
                             .notice = notices_.writer()});
    });
    EXPECT_THAT(errors, ::testing::Each(""));
  }
  std::string failure(int rank) {
    EXPECT_TRUE(eventually([&] { return members_[rank]->failure().has_value(); }));
    return members_[rank]->failure()->what();
  }
  bool noticed(const std::string& text) {
    return eventually([&] { return notices_.has(text); });
  }

  Lines notices_;
  LocalJob job_{1};
  TcpFaultProxy cable_{net::InternetAddress::parse(job_.address(0), "the leader")};
  Members members_{3};
};

TEST_F(CutLink, BothSidesNameTheOther) {
  join_all(seconds(2));
  cable_.freeze();
  EXPECT_TRUE(noticed("worker:1: worker:2 has been silent for"));
  for (const int rank : {0, 1}) {
    EXPECT_THAT(failure(rank), AllOf(HasSubstr("worker:2 counts as dead: silent for"),
                                     HasSubstr("(peer worker:2)")));
  }
  EXPECT_THAT(failure(2),
              AllOf(HasSubstr("the leader, counts as dead"), HasSubstr("(peer worker:0)")));
}

TEST_F(CutLink, AShortCutIsNoFailure) {
  join_all(kPlenty);  // short: however long it takes to notice
  cable_.freeze();
  EXPECT_TRUE(noticed("worker:2 has been silent for"));
  cable_.thaw();
  EXPECT_TRUE(noticed("worker:2 is heard again"));
  members_[2]->store().set("k", "v");
  EXPECT_EQ(members_[0]->store().get("k", kPlenty), "v");
  for (const auto& member : members_) EXPECT_FALSE(member->failure());
}

TEST_F(CutLink, FlappingIsNoFailure) {
  join_all(seconds(2));
  for (int flap = 0; flap < 10; ++flap) {
    cable_.freeze();
    std::this_thread::sleep_for(milliseconds(150));
    cable_.thaw();
    std::this_thread::sleep_for(milliseconds(50));
  }
  const auto errors = on_threads(3, [&](int rank) { members_[rank]->barrier("b", kPlenty); });
  EXPECT_THAT(errors, ::testing::Each(""));
}

class Heard : public coordination::LeaderLink::Listener {
 public:
  void received(const proto::FromLeader&) override { something = true; }
  void closed(const std::string&) override { the_end = true; }
  std::atomic<bool> something = false, the_end = false;
};

// Before a leader's first answer nothing else would tell that it is silent.
TEST(CutLinkItself, EndsByTheTimesOfItsTask) {
  const LocalJob job(2);
  const coordination::Roster roster(job.resolver(0));
  const coordination::Security security({}, false, environment({}));
  const coordination::LeaderServer server(roster, "job", {}, security, [](const std::string&) {});
  TcpFaultProxy cable(net::InternetAddress::parse(job.address(0), "the leader"));
  Heard heard;
  coordination::LeaderLink link(*roster.leader(), cable.endpoint(), {.dead = milliseconds(300)},
                                security, heard);
  proto::FromMember message;
  message.mutable_join()->set_protocol(coordination::kProtocolVersion);
  message.mutable_join()->set_cluster_hash(roster.cluster_hash());
  message.mutable_join()->set_rank(1);
  message.mutable_join()->set_size(2);
  link.send(message);
  EXPECT_TRUE(eventually([&] { return heard.something.load(); }));
  cable.freeze();
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_TRUE(eventually([&] { return heard.the_end.load(); }));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, seconds(10)) << "0.9 s, or a little more";
}

// While tasks gather: worker:0 and worker:1, which is connected through the cable, wait for
// worker:2.
class CutWhileGathering : public ::testing::Test {
 protected:
  std::string join_as(int rank, milliseconds join_timeout,
                      milliseconds dead_after = milliseconds(1500)) {
    return on_threads(1, [&](int) {
      join(resolver(rank, 3, rank == 1 ? cable_.endpoint().port() : job_.port(0)),
           {.join_timeout = join_timeout,
            .heartbeat = milliseconds(100),
            .suspect_after = milliseconds(700),
            .dead_after = dead_after,
            .notice = notices_.writer()})
          ->leave();
    })[0];
  }
  bool noticed(const std::string& text) {
    return eventually([&] { return notices_.has(text); });
  }

  Lines notices_;
  LocalJob job_{1};
  TcpFaultProxy cable_{net::InternetAddress::parse(job_.address(0), "the leader")};
};

TEST_F(CutWhileGathering, TheLeaderIsNamedRatherThanWhoeverIsMissing) {
  std::thread leader([&] { join_as(0, seconds(9)); });
  std::string error;
  std::thread member([&] { error = join_as(1, seconds(9)); });
  EXPECT_TRUE(noticed("worker:1: waiting for worker:2"));
  cable_.freeze();
  EXPECT_TRUE(noticed("worker:1: lost worker:0"));
  member.join();
  EXPECT_THAT(
      error, AllOf(HasSubstr("waited 9 s for the leader, worker:0"), HasSubstr("(peer worker:0)")));
  leader.join();
}

TEST_F(CutWhileGathering, ALeaderThatWakesUpIsJoinedAgain) {
  std::string errors[3];
  std::thread leader([&] { errors[0] = join_as(0, kPlenty); });
  std::thread member([&] { errors[1] = join_as(1, kPlenty); });
  EXPECT_TRUE(noticed("worker:1: waiting for worker:2"));
  cable_.freeze();
  EXPECT_TRUE(noticed("worker:1: lost worker:0"));
  cable_.thaw();
  errors[2] = join_as(2, kPlenty);
  leader.join();
  member.join();
  EXPECT_THAT(errors, ::testing::Each(""));
}

// The leader does not know yet that worker:1 has given up its connection when the last one comes.
TEST_F(CutWhileGathering, AConnectionThatWasGivenUpIsNoneOfTheJob) {
  std::string errors[3];
  std::thread leader([&] { errors[0] = join_as(0, kPlenty, kPlenty); });
  std::thread member([&] { errors[1] = join_as(1, kPlenty); });
  EXPECT_TRUE(noticed("worker:1: waiting for worker:2"));
  cable_.freeze();
  EXPECT_TRUE(noticed("worker:1: lost worker:0"));
  std::thread last([&] { errors[2] = join_as(2, kPlenty, kPlenty); });
  EXPECT_TRUE(noticed("worker:2: waiting for worker:1"));
  cable_.thaw();
  for (std::thread* task : {&leader, &member, &last}) task->join();
  EXPECT_THAT(errors, ::testing::Each(""));
}

}  // namespace
}  // namespace cohort::testing
