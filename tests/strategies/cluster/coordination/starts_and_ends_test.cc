#include <condition_variable>
#include <mutex>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "proto/coordination.pb.h"
#include "strategies/cluster/coordination/endpoint.h"
#include "strategies/cluster/coordination/leader_link.h"
#include "strategies/cluster/coordination/leader_server.h"
#include "strategies/cluster/coordination/limits.h"
#include "strategies/cluster/coordination/roster.h"
#include "tests/strategies/cluster/coordination/job.h"
#include "tests/testing/resources.h"

// Leaders and members that come and go, many times over, leave nothing behind.
namespace cohort::testing {
namespace {

using coordination::LeaderLink;
using coordination::LeaderServer;
using coordination::Roster;
using coordination::Security;
using ::testing::AnyOf;
using ::testing::Each;
using ::testing::HasSubstr;

// Runs `cycle(number)` so many times. What gRPC keeps for the next one is there after the first
// tenth, but for a few threads, which come and go, and what they wake each other by.
void repeat(int cycles, const std::function<void(int)>& cycle) {
  constexpr int64_t kOfGrpc = 8;
  Resources before;
  for (int number = 0; number < cycles && !::testing::Test::HasFatalFailure(); ++number) {
    if (number == cycles / 10) before = resources_of();
    SCOPED_TRACE(str("cycle ", number));
    cycle(number);
  }
  const auto is_flat = [&] {
    const Resources now = resources_of();
    return now.descriptors <= before.descriptors + kOfGrpc &&
           now.threads <= before.threads + kOfGrpc;
  };
  EXPECT_TRUE(eventually(is_flat)) << before << "; " << resources_of();
}

TEST(StartsAndEnds, OfJobsWhoseTasksLeaveOrJustGo) {
  LocalJob job(2);
  repeat(200, [&](int number) {
    const bool leaves = number % 2 == 1;
    const auto errors = on_threads(2, [&](int rank) {
      const auto member = join(job.resolver(rank));
      if (leaves) member->leave();
    });
    // Where one does not wait, the other may see it go before join() returns.
    ASSERT_THAT(errors, Each(AnyOf("", HasSubstr(leaves ? "never" : "without leave()"))));
  });
}

// A task as far as its leader sees it.
class Caller : public LeaderLink::Listener {
 public:
  Caller(const Roster& roster, int rank, const Security& security)
      : link_(std::make_unique<LeaderLink>(*roster.leader(),
                                           coordination::resolve(*roster.leader())[0],
                                           coordination::Timing{}, security, *this)) {
    proto::FromMember message;
    proto::Join& join = *message.mutable_join();
    join.set_protocol(coordination::kProtocolVersion);
    join.set_cluster_hash(roster.cluster_hash());
    join.set_rank(rank);
    join.set_size(roster.size());
    join.set_incarnation(static_cast<uint64_t>(rank) + 1);
    link_->send(message);
  }
  void ask(uint64_t id) {
    proto::FromMember message;
    message.mutable_request()->set_id(id);
    message.mutable_request()->mutable_add()->set_key("calls");
    link_->send(message);
  }
  bool answers_the_roll_call() {
    proto::FromMember answer;
    const bool is_asked = happens([&] {
      answer.mutable_present()->set_roll_call(roll_call_);
      return roll_call_ != 0;
    });
    if (is_asked) link_->send(answer);
    return is_asked;
  }
  bool becomes_member() {
    return happens([this] { return is_member_; });
  }
  bool is_left_alone() {
    return happens([this] { return is_closed_; });
  }

  void received(const proto::FromLeader& message) override {
    const std::lock_guard lock(mutex_);
    is_member_ |= message.has_welcome();
    if (message.has_waiting()) roll_call_ = message.waiting().roll_call();
    changed_.notify_all();
  }
  void closed(const std::string&) override {
    const std::lock_guard lock(mutex_);
    is_closed_ = true;
    changed_.notify_all();
  }

 private:
  bool happens(const std::function<bool()>& what) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, kPlenty, what);
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_member_ = false, is_closed_ = false;
  int64_t roll_call_ = 0;             // 0: none yet
  std::unique_ptr<LeaderLink> link_;  // last: it calls this object
};

TEST(StartsAndEnds, OfLeadersWhomTasksStillAsk) {
  const LocalJob job(2);
  const Roster roster(job.resolver(0));
  const Security security({}, false, environment({}));
  repeat(1000, [&](int number) {
    auto server = std::make_unique<LeaderServer>(roster, "job", coordination::Timing{}, security,
                                                 [](const std::string&) {});
    Caller first(roster, 0, security), second(roster, 1, security);
    for (Caller* caller : {&first, &second}) ASSERT_TRUE(caller->answers_the_roll_call());
    for (Caller* caller : {&first, &second}) ASSERT_TRUE(caller->becomes_member());
    for (int call = 0; call < number % 4; ++call)
      for (Caller* caller : {&first, &second}) caller->ask(static_cast<uint64_t>(call));
    server.reset();
    for (Caller* caller : {&first, &second}) ASSERT_TRUE(caller->is_left_alone());
  });
}

}  // namespace
}  // namespace cohort::testing
