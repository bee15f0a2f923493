#include <arpa/inet.h>
#include <chrono>
#include <csignal>
#include <memory>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/strategies/cluster/coordination/job.h"
#include "tests/strategies/cluster/coordination/task_process.h"

// Members as processes, which are killed, stopped and started again.
namespace cohort::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using Clock = std::chrono::steady_clock;

class Processes : public ::testing::Test {
 protected:
  void start(int size, const std::vector<std::string>& arguments = {}) {
    job_ = std::make_unique<LocalJob>(size);
    arguments_ = arguments;
    for (int rank = 0; rank < size; ++rank) tasks_.push_back(start_task(rank));
    for (const auto& task : tasks_) task->wait_for("joined ");
  }

  std::unique_ptr<TaskProcess> start_task(int rank, int descriptor_limit = 0) const {
    return std::make_unique<TaskProcess>(
        Variables{{"TF_CONFIG", str(R"({"cluster":)", job_->spec().json(),
                                    R"(,"task":{"type":"worker","index":)", rank, "}}")}},
        arguments_, descriptor_limit);
  }

  // Every task but `but` is told of the failure of `culprit`.
  void expect_failure(int culprit, const std::string& words, int but) {
    for (int rank = 0; rank < job_->size(); ++rank) {
      if (rank == but) continue;
      tasks_[rank]->wait_for("failed UNAVAILABLE");
      EXPECT_THAT(tasks_[rank]->wait_for(str("(peer worker:", culprit, ")")), HasSubstr(words));
    }
  }

  std::unique_ptr<LocalJob> job_;
  std::vector<std::string> arguments_;
  std::vector<std::unique_ptr<TaskProcess>> tasks_;
};

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

TEST_F(Processes, AKilledTaskIsNoticedAtOnce) {
  start(3);
  tasks_[2]->tell("barrier never 60000");
  const auto begin = Clock::now();
  tasks_[1]->send(SIGKILL);
  expect_failure(1, "connection has closed", 1);
  EXPECT_LT(seconds_since(begin), 2.5);  // sooner than any silence counts
  // What waited has failed, and so does what comes later.
  EXPECT_THAT(tasks_[2]->wait_for("error in barrier never"), HasSubstr("worker:1"));
  tasks_[0]->tell("set key 1");
  EXPECT_THAT(tasks_[0]->wait_for("error in set key 1"), HasSubstr("worker:1"));
}

TEST_F(Processes, AKilledLeaderIsNoticedAtOnce) {
  start(3);
  const auto begin = Clock::now();
  tasks_[0]->send(SIGKILL);
  expect_failure(0, "the leader, is gone", 0);
  EXPECT_LT(seconds_since(begin), 2.5);
}

TEST_F(Processes, AStopUntilOthersNoticeIsNoFailure) {
  start(3);
  tasks_[1]->send(SIGSTOP);
  for (const int rank : {0, 2}) tasks_[rank]->wait_for("has been silent for");
  // The others go on meanwhile.
  tasks_[0]->tell("set meanwhile 7");
  tasks_[2]->tell("get meanwhile 60000");
  tasks_[2]->wait_for("value 7");
  tasks_[1]->send(SIGCONT);
  for (const int rank : {0, 2}) tasks_[rank]->wait_for("is heard again");
  for (const auto& task : tasks_) task->tell("barrier after 60000");
  for (const auto& task : tasks_) {
    EXPECT_THAT(task->wait_for("done barrier after"), Not(HasSubstr("failed UNAVAILABLE")));
  }
}

TEST_F(Processes, ALeaderThatStopsUntilOthersNoticeIsNoFailure) {
  start(3);
  tasks_[0]->send(SIGSTOP);
  for (const int rank : {1, 2}) tasks_[rank]->wait_for("has been silent for");
  tasks_[0]->send(SIGCONT);
  for (const int rank : {1, 2}) tasks_[rank]->wait_for("is heard again");
  for (const auto& task : tasks_) task->tell("barrier after 60000");
  for (const auto& task : tasks_) {
    EXPECT_THAT(task->wait_for("done barrier after"), Not(HasSubstr("failed UNAVAILABLE")));
  }
}

TEST_F(Processes, AFrozenTaskIsNamedThenDeclaredDeadAndRefusedWhenItWakes) {
  start(3);
  const auto begin = Clock::now();
  tasks_[1]->send(SIGSTOP);
  for (const int rank : {0, 2}) {
    tasks_[rank]->wait_for(str("worker:1 (", job_->address(1), ") has been silent for"));
  }
  EXPECT_LT(seconds_since(begin), 4.5);
  expect_failure(1, "counts as dead: silent for", 1);
  EXPECT_GT(seconds_since(begin), 4.4);  // its last sign of life was half a second old at most
  EXPECT_LT(seconds_since(begin), 8);
  tasks_[1]->send(SIGCONT);
  tasks_[1]->tell("set key 1");
  EXPECT_THAT(tasks_[1]->wait_for("error in set key 1"),
              AllOf(HasSubstr("the job has given up this task"), HasSubstr("worker:1")));
}

TEST_F(Processes, AFrozenLeaderIsDeclaredDeadByTheOthers) {
  start(3);
  const auto begin = Clock::now();
  tasks_[0]->send(SIGSTOP);
  expect_failure(0, "counts as dead: silent for", 0);
  EXPECT_LT(seconds_since(begin), 8);
  // When it wakes, it finds itself alone, and blames none of the others.
  for (const int rank : {1, 2}) tasks_[rank]->tell("end");
  for (const int rank : {1, 2}) EXPECT_EQ(tasks_[rank]->wait(), 0);
  tasks_[0]->send(SIGCONT);
  tasks_[0]->wait_for("failed UNAVAILABLE");
  EXPECT_THAT(tasks_[0]->wait_for("(peer worker:0)"), HasSubstr("the job has given up this task"));
}

TEST_F(Processes, ATaskThatIsStartedAgainReplacesItsFrozenSelf) {
  start(3);
  tasks_[1]->send(SIGSTOP);
  const auto again = start_task(1);
  expect_failure(1, "was started again", 1);
  tasks_[1]->send(SIGCONT);
  EXPECT_THAT(tasks_[1]->wait_for("failed UNAVAILABLE"), HasSubstr("given up this task"));
  // The new one waits until the old job has ended; then all meet again.
  for (const auto& task : tasks_) task->tell("end");
  for (const auto& task : tasks_) EXPECT_EQ(task->wait(), 0);
  const auto leader = start_task(0), other = start_task(2);
  for (TaskProcess* task : {leader.get(), again.get(), other.get()}) task->wait_for("joined ");
}

TEST_F(Processes, ASecondTaskOfTheSameRankIsRefusedWithoutHarm) {
  start(3);
  const auto second = start_task(1);
  EXPECT_EQ(second->wait(), exit_code(Code::kFailedPrecondition));
  EXPECT_THAT(second->output(),
              AllOf(HasSubstr("another living task"), HasSubstr("worker:1"), HasSubstr("refused")));
  for (const auto& task : tasks_) task->tell("barrier after 60000");
  for (const auto& task : tasks_) {
    EXPECT_THAT(task->wait_for("done barrier after"), Not(HasSubstr("failed UNAVAILABLE")));
  }
}

TEST_F(Processes, AQuickRestartIsAFailureOfTheOldJobAndJoinsTheNext) {
  start(2);
  tasks_[1]->send(SIGKILL);
  tasks_[1] = start_task(1);
  tasks_[0]->wait_for("failed UNAVAILABLE");
  tasks_[0]->tell("end");
  EXPECT_EQ(tasks_[0]->wait(), 0);
  tasks_[0] = start_task(0);
  for (const auto& task : tasks_) task->wait_for("joined ");
  for (const auto& task : tasks_) task->tell("leave 60000");
  for (const auto& task : tasks_) task->wait_for("done leave");
}

TEST_F(Processes, ATaskThatDiesWhileOthersWaitIsNamedAtOnceAndCanComeAgain) {
  job_ = std::make_unique<LocalJob>(3);
  auto leader = start_task(0), first = start_task(1);
  first->wait_for("waiting for worker:2 (" + job_->address(2) + ") since 5 s");
  const auto begin = Clock::now();
  first->send(SIGKILL);
  leader->wait_for(str("while tasks gather, worker:1 (", job_->address(1),
                       ") is gone: its connection has closed"));
  EXPECT_LT(seconds_since(begin), 2.5);
  const auto second = start_task(1), last = start_task(2);
  for (TaskProcess* task : {leader.get(), second.get(), last.get()}) {
    EXPECT_THAT(task->wait_for("joined "), Not(HasSubstr("failed UNAVAILABLE")));
  }
}

TEST_F(Processes, ALeaderThatDiesWhileOthersWaitIsNamedAtOnceAndCanComeAgain) {
  job_ = std::make_unique<LocalJob>(3);
  auto leader = start_task(0);
  const auto member = start_task(1);
  member->wait_for("waiting for worker:2");
  const auto begin = Clock::now();
  leader->send(SIGKILL);
  member->wait_for(str("lost worker:0 (", job_->address(0),
                       "), the leader, while tasks gather: its connection has closed"));
  EXPECT_LT(seconds_since(begin), 2.5);
  EXPECT_EQ(leader->wait(), 128 + SIGKILL);
  leader = start_task(0);
  const auto last = start_task(2);
  for (TaskProcess* task : {leader.get(), member.get(), last.get()}) {
    EXPECT_THAT(task->wait_for("joined "), Not(HasSubstr("failed UNAVAILABLE")));
  }
}

TEST_F(Processes, ALeaderThatIsFrozenWhileTasksGatherIsNamedAndJoinedAgain) {
  job_ = std::make_unique<LocalJob>(3);
  arguments_ = {"heartbeat=100", "suspect=700", "dead=2000", "join=60000"};
  for (const int rank : {0, 1}) tasks_.push_back(start_task(rank));
  tasks_[1]->wait_for("waiting for worker:2");
  tasks_[0]->send(SIGSTOP);
  tasks_[1]->wait_for("the leader, has been silent for");
  tasks_[1]->wait_for("lost worker:0");
  tasks_.push_back(start_task(2));
  tasks_[0]->send(SIGCONT);
  for (const auto& task : tasks_) {
    EXPECT_THAT(task->wait_for("joined "), Not(HasSubstr("failed UNAVAILABLE")));
  }
}

// A task that is frozen while tasks gather counts as dead soon, and its place is free again.
class FrozenWhileJoining : public Processes {
 protected:
  // worker:1 is frozen after it was let in; worker:2 comes when that has been noticed.
  void freeze(const std::string& join_limit) {
    job_ = std::make_unique<LocalJob>(3);
    arguments_ = {"heartbeat=100", "suspect=700", "dead=2000", join_limit};
    for (const int rank : {0, 1}) tasks_.push_back(start_task(rank));
    tasks_[1]->wait_for("waiting for worker:2");
    tasks_[1]->send(SIGSTOP);
    tasks_[0]->wait_for(str("waiting for worker:1 (", job_->address(1), ")"));
    tasks_.push_back(start_task(2));
  }
};

TEST_F(FrozenWhileJoining, JoinsWhenItWakesUp) {
  freeze("join=60000");
  tasks_[2]->wait_for(str("waiting for worker:1 (", job_->address(1), ")"));
  tasks_[1]->send(SIGCONT);
  for (const auto& task : tasks_) {
    EXPECT_THAT(task->wait_for("joined "), Not(HasSubstr("failed UNAVAILABLE")));
  }
}

TEST_F(FrozenWhileJoining, IsNamedByTheOthersWhenTheTimeIsOver) {
  freeze("join=30000");
  for (const int rank : {0, 2}) {
    EXPECT_EQ(tasks_[rank]->wait(), exit_code(Code::kDeadlineExceeded));
    EXPECT_THAT(tasks_[rank]->output(),
                AllOf(HasSubstr(str("waited 30 s for worker:1 (", job_->address(1), ")")),
                      HasSubstr("(peer worker:1)")));
  }
}

// Connects and says nothing, until it is destroyed.
class IdleConnections {
 public:
  IdleConnections(int port, int count) {
    for (int i = 0; i < count; ++i) {
      sockaddr_in address{};
      address.sin_family = AF_INET;
      address.sin_port = htons(static_cast<uint16_t>(port));
      address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
      sockets_.push_back(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
      (void)connect(sockets_.back(), reinterpret_cast<sockaddr*>(&address), sizeof address);
    }
  }
  ~IdleConnections() {
    for (const int socket : sockets_) close(socket);
  }

 private:
  std::vector<int> sockets_;
};

TEST_F(Processes, AFloodOfConnectionsPassesAndTheServiceComesBack) {
  for (const bool flood_goes_away : {true, false}) {
    job_ = std::make_unique<LocalJob>(3);
    tasks_.clear();
    tasks_.push_back(start_task(0, 64));
    tasks_.push_back(start_task(1));
    tasks_[0]->wait_for("waiting for");
    auto flood = std::make_unique<IdleConnections>(job_->port(0), 200);
    if (flood_goes_away) flood.reset();
    const auto begin = Clock::now();
    tasks_.push_back(start_task(2));
    for (const auto& task : tasks_) {
      EXPECT_THAT(task->wait_for("joined "), Not(HasSubstr("failed UNAVAILABLE")));
    }
    // Idle connections are closed after five seconds; a process has to start on a busy machine.
    EXPECT_LT(seconds_since(begin), flood_goes_away ? 20 : 30);
    for (const auto& task : tasks_) task->tell("leave 60000");
    for (const auto& task : tasks_) task->wait_for("done leave");
  }
}

}  // namespace
}  // namespace cohort::testing
