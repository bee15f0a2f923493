// A leader whose allocations fail says so, and blames nobody else; a member ends no process.
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <new>
#include <string>
#include <sys/socket.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/error.h"
#include "proto/coordination.pb.h"
#include "strategies/cluster/address.h"
#include "strategies/cluster/coordination/endpoint.h"
#include "strategies/cluster/coordination/leader_link.h"
#include "strategies/cluster/coordination/leader_server.h"
#include "strategies/cluster/coordination/leader_state.h"
#include "strategies/cluster/coordination/limits.h"
#include "strategies/cluster/coordination/listener.h"
#include "strategies/cluster/coordination/roster.h"
#include "strategies/cluster/coordination/security.h"
#include "strategies/cluster/net/descriptor.h"
#include "strategies/cluster/net/internet_address.h"
#include "tests/strategies/cluster/coordination/job.h"
#include "tests/testing/failing_allocations.h"

namespace cohort::testing {
namespace {

using coordination::LeaderState;
using coordination::Roster;
using ::testing::Each;
using ::testing::StartsWith;

// A member at the other end.
class Wire : public coordination::Connection {
 public:
  void send(const proto::FromLeader& message) override {
    if (!finished) messages.push_back(message);
  }
  void finish() override { finished = true; }

  proto::Fault failure() const {
    for (const auto& message : messages)
      if (message.has_failure()) return message.failure().fault();
    return {};
  }

  std::vector<proto::FromLeader> messages;
  bool finished = false;
};

// A leader whose members have all joined.
struct Led {
  explicit Led(const Roster& roster) : roster(roster) {
    for (int rank = 0; rank < roster.size(); ++rank) {
      wires.push_back(std::make_shared<Wire>());
      state.opened(wires.back(), now);
      state.received(wires.back(), joining(rank), now);
    }
    for (const auto& wire : wires) {
      proto::FromMember message;
      message.mutable_present()->set_roll_call(wire->messages.back().waiting().roll_call());
      state.received(wire, message, now);
    }
    for (const auto& wire : wires) EXPECT_TRUE(wire->messages.back().has_welcome());
    state.tick(now);  // the next heartbeat is due later
  }

  proto::FromMember joining(int rank) const {
    proto::FromMember message;
    message.mutable_join()->set_protocol(coordination::kProtocolVersion);
    message.mutable_join()->set_rank(rank);
    message.mutable_join()->set_size(roster.size());
    message.mutable_join()->set_incarnation(1);
    message.mutable_join()->set_cluster_hash(roster.cluster_hash());
    return message;
  }
  void expect_ended_by_leader() const {
    for (const auto& wire : wires) {
      EXPECT_TRUE(wire->finished);
      EXPECT_EQ(wire->failure().code(), static_cast<int>(Code::kResourceExhausted));
      EXPECT_THAT(wire->failure().message(), StartsWith(roster.described(0) + ", the leader, "));
      EXPECT_EQ(wire->failure().peer(), roster.name(0));
    }
  }

  const Roster& roster;
  LeaderState::Time now = LeaderState::Time() + std::chrono::hours(1);
  LeaderState state{roster, "the-job", {}, now};
  std::vector<std::shared_ptr<Wire>> wires;  // by rank
};

// Whether the allocation after so many did not succeed.
template <typename Work>
bool fails_after(int64_t allocations, const Work& work) {
  allocations_left = allocations;
  work();
  return std::exchange(allocations_left, -1) < 0;
}

class NoMemory : public ::testing::Test {
 protected:
  const LocalJob job_{3};
  const Roster roster_{job_.resolver(0)};
};

TEST_F(NoMemory, ForWhatAMemberSaysEndsTheJobByAnErrorOfTheLeader) {
  proto::FromMember message;
  message.mutable_request()->mutable_set()->set_key(std::string(100, 'k'));
  message.mutable_request()->mutable_set()->set_value(std::string(100, 'v'));
  for (int64_t succeed = 0;; ++succeed) {
    Led job(roster_);
    if (!fails_after(succeed, [&] { job.state.received(job.wires[1], message, job.now); })) break;
    job.state.closed(job.wires[1]);  // it does not matter any more who goes
    job.state.tick(job.now);
    job.expect_ended_by_leader();
  }
}

TEST_F(NoMemory, ForWhatMembersAreToldEndsTheJobByAnErrorOfTheLeader) {
  for (int64_t succeed = 0;; ++succeed) {
    Led job(roster_);
    job.now += seconds(1);
    if (!fails_after(succeed, [&] { job.state.tick(job.now); })) break;
    job.expect_ended_by_leader();
  }
}

TEST_F(NoMemory, ForTheEndOfTheJobIsWaitedFor) {
  for (int64_t succeed = 0;; ++succeed) {
    Led job(roster_);
    if (!fails_after(succeed, [&] { job.state.closed(job.wires[1]); })) break;
    fails_after(0, [&] { job.state.tick(job.now); });
    EXPECT_GT(job.state.next_tick(job.now), job.now);
    job.state.tick(job.now);
    for (const auto& wire : job.wires) {
      EXPECT_TRUE(wire->finished);
      EXPECT_NE(wire->failure().code(), 0);
    }
  }
}

TEST_F(NoMemory, ForAStrangerCostsNobodyElseAnything) {
  for (int64_t succeed = 0;; ++succeed) {
    Led job(roster_);
    proto::FromMember message = job.joining(1);
    message.mutable_join()->set_job_id("another");
    const auto stranger = std::make_shared<Wire>();
    job.state.opened(stranger, job.now);
    const bool failed =
        fails_after(succeed, [&] { job.state.received(stranger, message, job.now); });
    EXPECT_TRUE(stranger->finished);
    job.state.tick(job.now);
    for (const auto& wire : job.wires) EXPECT_FALSE(wire->finished);
    if (!failed) break;
  }
}

TEST(MemberWithoutMemory, GoesOnWhereThereIsNoneForALine) {
  const LocalJob job(2);
  std::atomic<bool> has_joined = false, is_starved = false;
  const Members members = join_all(job, {.notice = [&](const std::string&) {
                                     if (!has_joined) return;
                                     is_starved = true;
                                     throw std::bad_alloc();
                                   }});
  has_joined = true;
  members[1]->announce_stop();
  EXPECT_TRUE(eventually([&] { return is_starved.load(); }));
  const auto errors = on_threads(job.size(), [&](int rank) {
    members[rank]->barrier("b", kPlenty);
    members[rank]->leave();
  });
  EXPECT_THAT(errors, Each(""));
}

// A task that has none for what its leader says.
class Starved : public coordination::LeaderLink::Listener {
 public:
  void received(const proto::FromLeader&) override { throw std::bad_alloc(); }
  void closed(const std::string&) override { is_closed = true; }
  std::atomic<bool> is_closed = false;
};

TEST_F(NoMemory, ForWhatTheLeaderSaysEndsTheLink) {
  const coordination::Security security({}, false, environment({}));
  const coordination::LeaderServer server(roster_, "job", {}, security, [](const std::string&) {});
  Starved starved;
  coordination::LeaderLink link(*roster_.leader(), coordination::resolve(*roster_.leader())[0],
                                coordination::Timing{}, security, starved);
  proto::FromMember message;
  message.mutable_join()->set_protocol(coordination::kProtocolVersion);
  message.mutable_join()->set_cluster_hash(roster_.cluster_hash());
  message.mutable_join()->set_rank(1);
  message.mutable_join()->set_size(roster_.size());
  link.send(message);
  EXPECT_TRUE(eventually([&] { return starved.is_closed.load(); }));
}

TEST(ListenerTest, GoesOnWhereThereIsNoMemoryForOne) {
  const LocalJob job(1);
  const Address address = Address::parse(job.address(0));
  const auto endpoints = coordination::resolve(address);
  bool is_first = true;  // of the listener's thread
  const coordination::Listener listener("leader", address, endpoints, [&](int descriptor) {
    const net::Descriptor socket(descriptor);
    if (std::exchange(is_first, false)) throw std::bad_alloc();
    send(socket.get(), "x", 1, MSG_NOSIGNAL);
  });
  const auto bytes_heard = [&] {
    const net::Descriptor socket = endpoints[0].socket();
    EXPECT_EQ(endpoints[0].connect(socket), 0);
    char byte = 0;
    return read(socket.get(), &byte, 1);
  };
  EXPECT_LE(bytes_heard(), 0);
  EXPECT_EQ(bytes_heard(), 1);
}

}  // namespace
}  // namespace cohort::testing
