#include "strategies/cluster/coordination/leader_state.h"

#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/random.h"
#include "proto/coordination.pb.h"
#include "strategies/cluster/coordination/barrier_table.h"
#include "strategies/cluster/coordination/key_value_store.h"
#include "strategies/cluster/coordination/limits.h"
#include "strategies/cluster/coordination/running_clock.h"
#include "tests/strategies/cluster/coordination/job.h"
#include "tests/testing/trials.h"

// The leader's decisions, message by message, in a time of the test's own.
namespace cohort::coordination {
namespace {

using cohort::testing::milliseconds;
using cohort::testing::seconds;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::SizeIs;
using Time = RunningClock::Time;

// A member at the other end.
class Wire : public Connection {
 public:
  void send(const proto::FromLeader& message) override {
    if (!finished) messages.push_back(message);
  }
  void drop_answers() override { answers_dropped = true; }
  void finish() override { finished = true; }
  size_t unsent_bytes() const override { return unsent; }
  std::string host() const override { return address; }

  // The last message of a kind, or an empty one.
  proto::FromLeader last(proto::FromLeader::KindCase kind) const {
    for (auto message = messages.rbegin(); message != messages.rend(); ++message) {
      if (message->kind_case() == kind) return *message;
    }
    return {};
  }
  bool got(proto::FromLeader::KindCase kind) const { return last(kind).kind_case() == kind; }
  std::string failure() const {
    return last(proto::FromLeader::kFailure).failure().fault().message();
  }
  std::string refusal() const {
    return last(proto::FromLeader::kRefused).refused().fault().message();
  }

  std::vector<proto::FromLeader> messages;
  bool answers_dropped = false, finished = false;
  size_t unsent = 0;
  std::string address = "10.0.0.7";
};

class LeaderStateTest : public ::testing::Test {
 protected:
  LeaderStateTest() : roster_(job_.resolver(0)), state_(roster_, "the-job", {}, now_) {}

  static proto::FromMember join_message(int rank) {
    proto::FromMember message;
    message.mutable_join()->set_protocol(kProtocolVersion);
    message.mutable_join()->set_rank(rank);
    message.mutable_join()->set_size(3);
    message.mutable_join()->set_incarnation(100 + static_cast<uint64_t>(rank));
    return message;
  }
  proto::FromMember fitting(int rank) const {
    proto::FromMember message = join_message(rank);
    message.mutable_join()->set_cluster_hash(roster_.cluster_hash());
    return message;
  }
  // Of another task that claims the rank.
  proto::FromMember rival(int rank) const {
    proto::FromMember message = fitting(rank);
    message.mutable_join()->set_incarnation(200 + static_cast<uint64_t>(rank));
    return message;
  }
  std::shared_ptr<Wire> stranger(const proto::FromMember& first) {
    auto wire = std::make_shared<Wire>();
    state_.opened(wire, now_);
    state_.received(wire, first, now_);
    return wire;
  }
  // The task comes over a new connection.
  void come(int rank) { wires_[rank] = stranger(fitting(rank)); }
  void come_all() {
    for (int rank = 0; rank < 3; ++rank) come(rank);
  }
  // To the roll call that it heard last.
  static proto::FromMember answer(const Wire& wire) {
    proto::FromMember message;
    message.mutable_present()->set_roll_call(
        wire.last(proto::FromLeader::kWaiting).waiting().roll_call());
    return message;
  }
  void answer_roll_call(int rank) { state_.received(wires_[rank], answer(*wires_[rank]), now_); }
  bool are_all_welcome() const {
    return std::ranges::all_of(
        wires_, [](const auto& wire) { return wire->got(proto::FromLeader::kWelcome); });
  }
  bool is_any_welcome() const {
    return std::ranges::any_of(
        wires_, [](const auto& wire) { return wire->got(proto::FromLeader::kWelcome); });
  }
  void join_all() {
    come_all();
    for (int rank = 0; rank < 3; ++rank) answer_roll_call(rank);
    ASSERT_TRUE(are_all_welcome());
  }
  void heartbeat(int rank) {
    proto::FromMember message;
    message.mutable_heartbeat();
    state_.received(wires_[rank], message, now_);
  }
  void leave(int rank) {
    proto::FromMember message;
    message.mutable_leave()->set_timeout_ms(1'000'000);
    state_.received(wires_[rank], message, now_);
  }
  // Asks for a key as a member, and waits for it.
  void get(int rank, const std::string& key) {
    proto::FromMember message;
    message.mutable_request()->set_timeout_ms(1'000'000);
    message.mutable_request()->set_get(key);
    state_.received(wires_[rank], message, now_);
  }
  void set(int rank, const std::string& key, const std::string& value) {
    proto::FromMember message;
    message.mutable_request()->mutable_set()->set_key(key);
    message.mutable_request()->mutable_set()->set_value(value);
    state_.received(wires_[rank], message, now_);
  }
  proto::Reply last_reply(int rank) const {
    return wires_[rank]->last(proto::FromLeader::kReply).reply();
  }
  // Lets time pass; `alive` keep sending heartbeats.
  void pass(milliseconds time, const std::vector<int>& alive) {
    for (const Time end = now_ + time; now_ < end;) {
      now_ += milliseconds(100);
      for (const int rank : alive) heartbeat(rank);
      state_.tick(now_);
    }
  }

  cohort::testing::LocalJob job_{3};
  Roster roster_;
  Time now_ = Time() + std::chrono::hours(1);
  LeaderState state_;
  std::vector<std::shared_ptr<Wire>> wires_{3};  // by rank, of those who have come
};

TEST_F(LeaderStateTest, RefusesOtherVersionsAndRanksAndNamesBothSides) {
  proto::FromMember old = fitting(1);
  old.mutable_join()->set_protocol(0);
  EXPECT_THAT(stranger(old)->refusal(),
              HasSubstr(str("protocol version 0, the leader ", kProtocolVersion)));
  for (const int rank : {-1, 3, 1 << 30}) {
    const auto wire = stranger(fitting(rank));
    EXPECT_THAT(wire->refusal(), AllOf(HasSubstr(str("rank ", rank)), HasSubstr("0 to 2")));
    EXPECT_TRUE(wire->finished);
  }
  join_all();
}

TEST_F(LeaderStateTest, TellsItsClusterToATaskOfAnotherAndToNobodyElse) {
  const auto cluster_told_to = [this](const proto::FromMember& message) {
    return stranger(message)->last(proto::FromLeader::kRefused).refused().cluster();
  };
  proto::FromMember of_another = fitting(1);
  of_another.mutable_join()->set_cluster_hash(roster_.cluster_hash() + 1);
  EXPECT_EQ(cluster_told_to(of_another), job_.spec().json());
  of_another.mutable_join()->set_job_id("another");
  EXPECT_EQ(cluster_told_to(of_another), "");
  EXPECT_EQ(cluster_told_to(fitting(3)), "");
  join_all();
}

TEST_F(LeaderStateTest, WhoOnlyAsksIsAnsweredLikeOneThatJoinsAndDoesNotJoin) {
  const auto ask = [this](proto::FromMember message) {
    proto::FromMember question;
    question.mutable_ask()->Swap(message.mutable_join());
    const auto wire = stranger(question);
    EXPECT_TRUE(wire->finished);
    EXPECT_THAT(wire->messages, SizeIs(1));
    return wire;
  };
  EXPECT_EQ(ask(fitting(1))->last(proto::FromLeader::kWaiting).waiting().missing_count(), 3);
  EXPECT_EQ(ask(fitting(7))->refusal(), stranger(fitting(7))->refusal());
  proto::FromMember of_another = fitting(1);
  of_another.mutable_join()->set_cluster_hash(roster_.cluster_hash() + 1);
  EXPECT_EQ(ask(of_another)->last(proto::FromLeader::kRefused).refused().cluster(),
            job_.spec().json());
  come(1);
  EXPECT_TRUE(ask(rival(1))->got(proto::FromLeader::kBusy));
  join_all();
  EXPECT_TRUE(ask(rival(2))->got(proto::FromLeader::kBusy));
  pass(seconds(1), {0, 1, 2});
  EXPECT_FALSE(wires_[0]->got(proto::FromLeader::kFailure));
}

TEST_F(LeaderStateTest, SilenceIsNamedAndThenEndsTheJob) {
  join_all();
  pass(milliseconds(2400), {0, 2});
  EXPECT_FALSE(wires_[0]->got(proto::FromLeader::kSuspicion));
  pass(milliseconds(200), {0, 2});
  const auto suspicion = wires_[2]->last(proto::FromLeader::kSuspicion).suspicion();
  EXPECT_EQ(suspicion.rank(), 1);
  EXPECT_GE(suspicion.silent_ms(), 2500);
  pass(milliseconds(2300), {0, 2});
  EXPECT_EQ(wires_[0]->failure(), "");
  pass(milliseconds(200), {0, 2});
  for (const auto& wire : wires_) {
    EXPECT_THAT(wire->failure(), AllOf(HasSubstr("worker:1"), HasSubstr("silent for 5 s"),
                                       HasSubstr("0000000000000065")));
    EXPECT_TRUE(wire->finished);
  }
}

TEST_F(LeaderStateTest, AWordInTimeEndsTheSuspicion) {
  join_all();
  pass(milliseconds(4800), {0, 2});
  heartbeat(1);
  EXPECT_TRUE(wires_[0]->last(proto::FromLeader::kSuspicion).suspicion().over());
  pass(milliseconds(4800), {0, 2});
  EXPECT_EQ(wires_[0]->failure(), "");
}

TEST_F(LeaderStateTest, WhoTakesWhatItIsSentIsAlive) {
  join_all();
  pass(milliseconds(4800), {0, 2});
  state_.took(wires_[1], now_);
  EXPECT_TRUE(wires_[0]->last(proto::FromLeader::kSuspicion).suspicion().over());
  pass(milliseconds(4800), {0, 2});
  EXPECT_EQ(wires_[0]->failure(), "");
  state_.took(std::make_shared<Wire>(), now_);
  pass(milliseconds(400), {0, 2});
  EXPECT_THAT(wires_[0]->failure(), HasSubstr("worker:1")) << "another has taken something";
}

TEST_F(LeaderStateTest, TheFirstFailureIsTheCause) {
  join_all();
  state_.closed(wires_[2]);
  state_.closed(wires_[1]);
  EXPECT_THAT(wires_[0]->failure(), HasSubstr("worker:2"));
  EXPECT_EQ(std::count_if(wires_[0]->messages.begin(), wires_[0]->messages.end(),
                          [](const auto& message) { return message.has_failure(); }),
            1);
  // Who comes now is told to wait for the next job.
  const auto wire = stranger(fitting(2));
  EXPECT_THAT(wire->last(proto::FromLeader::kBusy).busy().message(), HasSubstr("still ending"));
}

TEST_F(LeaderStateTest, ALivingRankIsNotReplacedAndASilentOneIs) {
  join_all();
  const auto duplicate = stranger(rival(1));
  pass(milliseconds(200), {0, 1, 2});
  EXPECT_THAT(duplicate->refusal(), HasSubstr("another living task"));
  const auto again = stranger(rival(1));
  pass(milliseconds(1600), {0, 2});
  EXPECT_THAT(wires_[0]->failure(), HasSubstr("was started again"));
  EXPECT_TRUE(again->got(proto::FromLeader::kBusy));
}

TEST_F(LeaderStateTest, ASilentTaskIsReplacedWhileOthersGather) {
  come(1);
  const auto again = stranger(rival(1));
  pass(milliseconds(1600), {});
  EXPECT_TRUE(wires_[1]->finished);
  EXPECT_TRUE(again->got(proto::FromLeader::kWaiting));
}

TEST_F(LeaderStateTest, WhoIsLostWhileTasksGatherIsNamedToThoseThatWait) {
  const auto lost = [this] { return wires_[0]->last(proto::FromLeader::kLost).lost(); };
  for (const int rank : {0, 1}) come(rank);
  state_.closed(wires_[1]);
  EXPECT_THAT(lost().message(), HasSubstr(str("worker:1 (", job_.address(1),
                                              ") is gone: its connection has closed")));
  EXPECT_EQ(lost().peer(), "worker:1");
  come(2);
  EXPECT_FALSE(wires_[2]->got(proto::FromLeader::kLost)) << "that was before it came";
  pass(milliseconds(5200), {0});
  EXPECT_THAT(lost().message(),
              AllOf(HasSubstr("worker:2"), HasSubstr("counts as dead: silent for 5 s")));
  for (const int rank : {1, 2}) come(rank);
  for (const int rank : {0, 1, 2}) answer_roll_call(rank);
  EXPECT_TRUE(are_all_welcome());
}

TEST_F(LeaderStateTest, AllAreWelcomeOnceEachHasAnsweredTheRollCall) {
  come_all();
  for (const int rank : {0, 0, 2, 2}) answer_roll_call(rank);
  // A heartbeat of worker:1 is no answer.
  pass(milliseconds(300), {0, 1, 2});
  EXPECT_FALSE(is_any_welcome());
  const auto waiting = wires_[0]->last(proto::FromLeader::kWaiting).waiting();
  EXPECT_THAT(waiting.missing(), ::testing::ElementsAre(1));
  EXPECT_EQ(waiting.missing_count(), 1);
  answer_roll_call(1);
  EXPECT_TRUE(are_all_welcome());
}

TEST_F(LeaderStateTest, TheRollIsCalledAgainAfterAConnectionHasEnded) {
  come_all();
  const auto late = answer(*wires_[2]);
  for (const int rank : {0, 1}) answer_roll_call(rank);
  state_.closed(wires_[1]);
  state_.received(wires_[2], late, now_);
  EXPECT_FALSE(is_any_welcome());
  come(1);
  state_.received(wires_[2], late, now_);
  for (const int rank : {0, 1}) answer_roll_call(rank);
  EXPECT_FALSE(is_any_welcome()) << "worker:2 has answered another roll call";
  answer_roll_call(2);
  EXPECT_TRUE(are_all_welcome());
}

TEST_F(LeaderStateTest, WhoDoesNotAnswerTheRollCallAndFallsSilentIsGivenUp) {
  come_all();
  for (const int rank : {0, 2}) answer_roll_call(rank);
  pass(milliseconds(5200), {0, 2});
  EXPECT_TRUE(wires_[1]->finished);
  come(1);
  for (const int rank : {0, 1, 2}) answer_roll_call(rank);
  EXPECT_TRUE(are_all_welcome());
}

// As after a leader that was frozen, or cut off, which the member had given up.
TEST_F(LeaderStateTest, ATaskThatJoinsAgainReplacesItsOwnConnection) {
  come(1);
  const auto given_up = wires_[1];
  come(1);
  EXPECT_TRUE(given_up->finished);
  // What it said before, over the other connection, comes late.
  proto::FromMember heartbeat;
  heartbeat.mutable_heartbeat();
  state_.received(given_up, heartbeat, now_);
  state_.closed(given_up);
  pass(milliseconds(1000), {1});
  EXPECT_TRUE(wires_[1]->got(proto::FromLeader::kWaiting));
  EXPECT_FALSE(wires_[1]->finished);
  for (const int rank : {0, 2}) come(rank);
  for (const int rank : {0, 1, 2}) answer_roll_call(rank);
  EXPECT_TRUE(are_all_welcome());
}

TEST_F(LeaderStateTest, ALateCopyOfAMembersJoinDoesNotHarmTheJob) {
  join_all();
  const auto again = stranger(fitting(1));
  EXPECT_TRUE(again->got(proto::FromLeader::kBusy));
  EXPECT_EQ(wires_[0]->failure(), "");
  EXPECT_FALSE(wires_[1]->finished);
}

TEST_F(LeaderStateTest, ConnectionsThatSayNothingAreClosed) {
  const auto silent = std::make_shared<Wire>();
  state_.opened(silent, now_);
  pass(milliseconds(5200), {});
  EXPECT_TRUE(silent->finished);
  proto::FromMember heartbeat;
  heartbeat.mutable_heartbeat();
  EXPECT_TRUE(stranger(heartbeat)->finished);
  EXPECT_TRUE(stranger({})->finished);
}

TEST_F(LeaderStateTest, TooManyWaitingCallsAreRefused) {
  join_all();
  for (size_t call = 0; call <= kMaxWaitingCalls; ++call) {
    proto::FromMember message;
    message.mutable_request()->set_id(call);
    message.mutable_request()->set_timeout_ms(1'000'000);
    message.mutable_request()->set_get("key");
    state_.received(wires_[1], message, now_);
  }
  const auto reply = wires_[1]->last(proto::FromLeader::kReply).reply();
  EXPECT_EQ(reply.id(), kMaxWaitingCalls);
  EXPECT_EQ(reply.error().code(), static_cast<int>(Code::kResourceExhausted));
  EXPECT_EQ(wires_[0]->failure(), "");
}

// Else those who wait for many values, and take none when they come, would have the leader keep a
// copy of each.
TEST_F(LeaderStateTest, AMemberWithTooMuchToTakeGetsAnErrorInPlaceOfAValue) {
  join_all();
  for (const int rank : {1, 2}) get(rank, "key");
  wires_[1]->unsent = KeyValueStore::kMaxStoreBytes - 4;
  set(0, "key", "value");
  EXPECT_EQ(last_reply(1).error().code(), static_cast<int>(Code::kResourceExhausted));
  EXPECT_THAT(last_reply(1).error().message(),
              AllOf(HasSubstr("worker:1 has 268435452 bytes"), HasSubstr("a value of 5")));
  EXPECT_EQ(last_reply(1).value(), "");
  EXPECT_EQ(last_reply(2).value(), "value");
  set(1, "another", "value");
  EXPECT_FALSE(last_reply(1).has_error()) << "an answer without a value";
  wires_[1]->unsent -= 1;
  get(1, "key");
  EXPECT_EQ(last_reply(1).value(), "value");
}

TEST_F(LeaderStateTest, WhoIsLostGetsNoMoreAnswers) {
  join_all();
  leave(1);
  pass(milliseconds(5200), {0, 2});
  EXPECT_TRUE(wires_[1]->answers_dropped);
  EXPECT_FALSE(wires_[0]->answers_dropped);
  EXPECT_EQ(wires_[0]->failure(), "") << "of who leaves";
  state_.closed(wires_[2]);
  EXPECT_TRUE(wires_[0]->answers_dropped) << "the job has failed";
}

TEST_F(LeaderStateTest, WhoLeavesGetsItsAnswers) {
  join_all();
  for (int rank = 0; rank < 3; ++rank) leave(rank);
  for (const auto& wire : wires_) {
    EXPECT_TRUE(wire->got(proto::FromLeader::kLeft));
    EXPECT_TRUE(wire->finished);
    EXPECT_FALSE(wire->answers_dropped);
  }
}

// However many names they have; those that are open can still be completed, which makes room.
TEST_F(LeaderStateTest, TooManyOpenBarriersAreRefused) {
  constexpr uint64_t kMost = 65536;
  BarrierTable barriers(roster_);
  const auto arrive = [&](int rank, uint64_t id, const std::string& name) {
    return barriers.arrive({rank, id}, name, seconds(1), now_);
  };
  for (uint64_t use = 0; use < kMost; ++use) ASSERT_TRUE(arrive(1, use, "b").empty());
  for (const std::string name : {"b", "another"}) {
    const Answers refused = arrive(1, kMost, name);
    ASSERT_THAT(refused, SizeIs(1));
    ASSERT_TRUE(refused[0].error);
    EXPECT_EQ(refused[0].error->code(), Code::kResourceExhausted);
    EXPECT_THAT(refused[0].error->message(),
                AllOf(HasSubstr(str('"', name, '"')), HasSubstr("there are 65536 barriers")));
  }
  EXPECT_TRUE(arrive(0, 0, "b").empty());
  EXPECT_THAT(arrive(2, 0, "b"), SizeIs(3)) << "all have come to the first";
  EXPECT_TRUE(arrive(1, kMost, "b").empty());
  EXPECT_THAT(arrive(1, kMost + 1, "b"), SizeIs(1));
}

// Any bytes, as messages in any order, from members and strangers: nothing throws, and whoever
// behaves is served or told of a failure.
TEST_F(LeaderStateTest, NothingThatIsSentBreaksIt) {
  const auto [first, count] = cohort::testing::trials(0, 300);
  for (uint64_t seed = first; seed < first + count; ++seed) {
    SCOPED_TRACE(str("seed ", seed));
    RandomStream random(seed);
    LeaderState state(roster_, "the-job", {}, now_);
    std::vector<std::shared_ptr<Wire>> wires;
    for (int step = 0; step < 300; ++step) {
      now_ += milliseconds(random.below(50));
      if (wires.empty() || random.below(20) == 0) {
        wires.push_back(std::make_shared<Wire>());
        state.opened(wires.back(), now_);
        const int rank = static_cast<int>(random.below(4));
        if (random.below(2))
          state.received(wires.back(), random.below(2) ? fitting(rank) : rival(rank), now_);
      }
      for (const auto& asked : wires) {
        const bool is_roll_call =
            !asked->messages.empty() && asked->messages.back().waiting().roll_call() != 0;
        if (is_roll_call && random.below(2)) state.received(asked, answer(*asked), now_);
      }
      const auto wire = wires[random.below(wires.size())];
      proto::FromMember message;
      std::string bytes;
      switch (random.below(8)) {
        case 0:
          for (uint64_t i = random.below(40); i > 0; --i) bytes += static_cast<char>(random.next());
          message.ParseFromString(bytes);  // what there was of it stays
          break;
        case 1:
          message.mutable_request()->set_id(random.next());
          message.mutable_request()->set_timeout_ms(static_cast<int64_t>(random.next()));
          message.mutable_request()->set_barrier("b");
          break;
        case 2:
          message.mutable_request()->set_get("k");
          message.mutable_request()->set_timeout_ms(static_cast<int64_t>(random.next()));
          break;
        case 3:
          message.mutable_request()->mutable_add()->set_key("k");
          message.mutable_request()->mutable_add()->set_amount(static_cast<int64_t>(random.next()));
          break;
        case 4:
          message.mutable_request()->mutable_compare_set()->set_key(random.below(2) ? "k" : "");
          if (random.below(2)) message.mutable_request()->mutable_compare_set()->set_expected("1");
          message.mutable_request()->mutable_compare_set()->set_value("1");
          break;
        case 5:
          message.mutable_request()->set_find(random.below(2) ? "k" : "");
          break;
        case 6:
          message.mutable_leave()->set_timeout_ms(static_cast<int64_t>(random.next()));
          break;
        default:
          message.mutable_stop_vote()->set_step(static_cast<int64_t>(random.next()));
          if (random.below(2)) message.mutable_announce_stop();
      }
      state.received(wire, message, now_);
      if (random.below(10) == 0) state.closed(wires[random.below(wires.size())]);
      state.tick(now_);
      EXPECT_GT(state.next_tick(now_), now_ - seconds(1));
    }
    state.stop();
  }
}

TEST_F(LeaderStateTest, OnceItWasStoppedItBlamesNobodyWhoHasGivenItUp) {
  join_all();
  state_.was_away(milliseconds(7200), now_);
  state_.closed(wires_[2]);
  const auto fault = wires_[1]->last(proto::FromLeader::kFailure).failure().fault();
  EXPECT_EQ(fault.peer(), "worker:0");
  EXPECT_THAT(fault.message(), AllOf(HasSubstr("the leader, was stopped for 7.2 s"),
                                     HasSubstr(roster_.described(2))));
}

TEST_F(LeaderStateTest, AStopThatWasTooShortToGiveItUpExcusesNobody) {
  join_all();
  state_.was_away(milliseconds(3000), now_);
  state_.closed(wires_[2]);
  EXPECT_EQ(wires_[1]->last(proto::FromLeader::kFailure).failure().fault().peer(), "worker:2");
}

TEST_F(LeaderStateTest, AStopThatWasLongAgoExcusesNobody) {
  join_all();
  state_.was_away(seconds(20), now_);
  pass(milliseconds(3000), {0, 1, 2});
  state_.closed(wires_[2]);
  EXPECT_EQ(wires_[1]->last(proto::FromLeader::kFailure).failure().fault().peer(), "worker:2");
}

TEST(RunningClock, LeavesOutTheTimeInWhichItWasNotRead) {
  const Time start = Time() + std::chrono::hours(5);
  RunningClock clock(seconds(1), start);
  EXPECT_EQ(clock.now(start + milliseconds(900)), start + milliseconds(900));
  EXPECT_EQ(clock.now(start + milliseconds(30'900)), start + milliseconds(1900));
  EXPECT_EQ(clock.last_step(), seconds(30));
  EXPECT_EQ(clock.now(start + milliseconds(31'000)), start + milliseconds(2000));
  EXPECT_EQ(clock.last_step(), milliseconds(100));
}

TEST_F(LeaderStateTest, TellsOfThoseWhomItRefusesOnceAMinuteForEachHost) {
  join_all();
  EXPECT_THAT(state_.take_notices(), SizeIs(0));
  proto::FromMember wrong = fitting(1);
  wrong.mutable_join()->set_job_id("another");
  for (int times = 0; times < 3; ++times) stranger(wrong);
  const auto told = state_.take_notices();
  ASSERT_THAT(told, SizeIs(1));
  EXPECT_THAT(told[0], AllOf(HasSubstr("refuses a task at 10.0.0.7: FAILED_PRECONDITION: rank 1, "
                                       "worker:1: this task has job id \"another\""),
                             HasSubstr("\"the-job\"")));
  auto other = std::make_shared<Wire>();
  other->address = "10.0.0.8";
  state_.opened(other, now_);
  state_.received(other, wrong, now_);
  EXPECT_THAT(state_.take_notices(), SizeIs(1));
  now_ += seconds(59);
  stranger(wrong);
  EXPECT_THAT(state_.take_notices(), SizeIs(0));
  now_ += seconds(1);
  stranger(wrong);
  EXPECT_THAT(state_.take_notices(), ::testing::ElementsAre(HasSubstr("done so 3 times since")));
}

TEST_F(LeaderStateTest, TellsTheRankOfThoseWhomItRefusesThoughItKnowsNoSuchTask) {
  stranger(fitting(7));
  EXPECT_THAT(
      state_.take_notices(),
      ::testing::ElementsAre(HasSubstr("FAILED_PRECONDITION: rank 7: this task has rank 7")));
}

TEST(RefusalLogTest, RemembersABoundedNumberOfHosts) {
  RefusalLog log;
  const Error error(Code::kPermissionDenied, "no");
  Time now{};
  int lines = 0;
  for (int host = 0; host < 5000; ++host)
    lines += log.line(std::to_string(host), error, now).has_value();
  EXPECT_EQ(lines, 1000);
  now += seconds(60);
  EXPECT_TRUE(log.line("another", error, now));
}

}  // namespace
}  // namespace cohort::coordination
