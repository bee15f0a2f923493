#include <condition_variable>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <future>
#include <mutex>
#include <optional>
#include <string>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "strategies/cluster/coordination/in_memory_store.h"
#include "strategies/cluster/net/socket.h"
#include "strategies/collective/stall_setting.h"
#include "tests/strategies/collective/connected_groups.h"

namespace cohort::testing {
namespace {

// All of four ranks add up; the connection that they tell.
void expect_sums(std::vector<ConnectedGroup> groups, const std::string& connection) {
  const Group ranks = ranks_of(std::move(groups), connection);
  ASSERT_EQ(ranks.size(), 4u);
  on_ranks(ranks, [](int rank, Communicator& communicator) {
    std::vector<float> values(50000, static_cast<float>(rank + 1));
    const Segment segment{values.data(), values.data(), 50000};
    communicator.all_reduce({&segment, 1}, DType::kFloat32, ReduceOp::kSum);
    EXPECT_EQ(values, std::vector<float>(50000, 10.0f));
  });
}

TEST(MakeCommunicatorsTest, ConnectsProcessesOverTcpWhereAsked) {
  expect_sums(
      connect_group(2, 2, [](int, GroupOptions& o) { o.backend = CommunicationBackend::kTcp; }),
      "TCP");
}

TEST(MakeCommunicatorsTest, ConnectsHostsOfOneRankOverTcp) {
  expect_sums(connect_group(4, 1, [](int p, GroupOptions& o) { o.host = str("host", p); }), "TCP");
}

TEST(MakeCommunicatorsTest, ConnectsHostsOfSeveralRanksOnTwoLevels) {
  const std::string both = "shared memory within hosts, TCP between them";
  expect_sums(connect_group(4, 1, [](int p, GroupOptions& o) { o.host = str("host", p / 2); }),
              both);
  expect_sums(connect_group(2, 2, [](int p, GroupOptions& o) { o.host = str("host", p); }), both);
}

TEST(MakeCommunicatorsTest, ConnectsProcessesOfAHostBySharedMemory) {
  expect_sums(connect_group(2, 2, [](int, GroupOptions& o) { o.host = "host"; }), "shared memory");
}

TEST(MakeCommunicatorsTest, AForkCanNeitherUseNorEndAGroup) {
  for (const auto& [backend, connection] :
       {std::pair(CommunicationBackend::kSharedMemory, "shared memory"),
        std::pair(CommunicationBackend::kTcp, "TCP")}) {
    Group ranks = ranks_of(
        connect_group(2, 1, [backend](int, GroupOptions& o) { o.backend = backend; }), connection);
    ASSERT_EQ(ranks.size(), 2u);
    const pid_t child = fork();
    if (child == 0) {
      alarm(60);
      const Error error = error_of([&] { ranks[0]->barrier(); });
      ranks[0]->abort(Error(Code::kAborted, "of a fork"));
      ranks.clear();
      _exit(error.code() == Code::kFailedPrecondition ? 0 : 1);
    }
    int status = -1;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    on_ranks(ranks, [](int, Communicator& communicator) { communicator.barrier(); });
  }
}

TEST(MakeCommunicatorsTest, TellsOnHowManyHostsAndWhyNotByWhatSuits) {
  const auto chosen =
      connect_group(4, 1, [](int p, GroupOptions& o) { o.host = str("host", p / 2); });
  const auto asked_for =
      connect_group(2, 1, [](int, GroupOptions& o) { o.backend = CommunicationBackend::kTcp; });
  for (const ConnectedGroup& group : chosen) {
    EXPECT_EQ(group.hosts, 2);
    EXPECT_EQ(group.reason, "");
  }
  for (const ConnectedGroup& group : asked_for) {
    EXPECT_EQ(group.hosts, 1);
    EXPECT_EQ(group.reason, "tcp is asked for");
  }
}

TEST(MakeCommunicatorsTest, TheLongestLimitsAreAsGoodAsNone) {
  const auto connect = [](const std::function<void(int, GroupOptions&)>& change) {
    return connect_group(4, 1, [&](int p, GroupOptions& o) {
      o.join_limit = std::chrono::milliseconds::max();
      o.limit = std::chrono::milliseconds::max();
      change(p, o);
    });
  };
  expect_sums(connect([](int, GroupOptions& o) { o.backend = CommunicationBackend::kTcp; }), "TCP");
  expect_sums(connect([](int, GroupOptions& o) { o.host = "host"; }), "shared memory");
  expect_sums(connect([](int p, GroupOptions& o) { o.host = str("host", p / 2); }),
              "shared memory within hosts, TCP between them");
}

// The last of three tasks does not come.
void expect_named(const std::function<void(int, GroupOptions&)>& change) {
  std::vector<ConnectedGroup> processes = connect_group(3, 1, [&](int p, GroupOptions& o) {
    o.tasks = {"chief:0", "worker:0", "worker:1"};
    o.limit = std::chrono::seconds(1);
    change(p, o);
  });
  Group ranks;
  for (auto& process : processes) ranks.push_back(std::move(process.communicators[0]));
  on_ranks(ranks, [](int rank, Communicator& communicator) {
    if (rank == 2) return;
    const Error error = error_of([&] { communicator.barrier(); });
    EXPECT_EQ(error.code(), Code::kDeadlineExceeded) << error.what();
    EXPECT_EQ(error.peer(), "worker:1") << error.what();
    EXPECT_NE(error.message().find("worker:1 (rank 2"), std::string::npos) << error.what();
  });
}

TEST(MakeCommunicatorsTest, NamesTheBackendsOfProcessesThatAskForOthers) {
  using Backend = CommunicationBackend;
  for (const Backend other : {Backend::kAuto, Backend::kSharedMemory}) {
    InMemoryStore store;
    const auto error_of_process = [&](int process) {
      return error_of([&] {
        make_communicators({.store = &store,
                            .name = "group",
                            .process = process,
                            .processes = 2,
                            .tasks = {"chief:0", "worker:0"},
                            .backend = process == 0 ? Backend::kTcp : other});
      });
    };
    auto of_second = std::async(std::launch::async, [&] { return error_of_process(1); });
    for (const Error& error : {error_of_process(0), of_second.get()}) {
      EXPECT_EQ(error.code(), Code::kFailedPrecondition) << error.what();
      for (const std::string& part : {std::string("chief:0"), std::string("worker:0"),
                                      std::string("tcp"), std::string(backend_name(other))})
        EXPECT_NE(error.message().find(part), std::string::npos) << error.what();
    }
  }
}

TEST(MakeCommunicatorsTest, NamesTheTaskThatDoesNotConnect) {
  const std::vector<std::string> tasks = {"chief:0", "worker:0"};
  using Backend = CommunicationBackend;
  for (const Backend backend : {Backend::kAuto, Backend::kTcp, Backend::kSharedMemory})
    for (const int process : {0, 1}) {
      InMemoryStore store;
      const Error error = error_of([&] {
        make_communicators({.store = &store,
                            .name = "group",
                            .process = process,
                            .processes = 2,
                            .tasks = tasks,
                            .backend = backend,
                            .join_limit = std::chrono::milliseconds(50)});
      });
      const std::string& missing = tasks[static_cast<size_t>(1 - process)];
      EXPECT_EQ(error.code(), Code::kDeadlineExceeded) << error.what();
      EXPECT_EQ(error.peer(), missing) << error.what();
      const std::string name = str(missing, " (process ", 1 - process, ')');
      EXPECT_NE(error.message().find(name), std::string::npos) << error.what();
    }
}

TEST(MakeCommunicatorsTest, NamesTheTaskThatDoesNotCome) {
  expect_named([](int, GroupOptions& o) { o.backend = CommunicationBackend::kTcp; });
  expect_named([](int, GroupOptions& o) { o.backend = CommunicationBackend::kSharedMemory; });
  expect_named([](int p, GroupOptions& o) { o.host = str("host", p == 0 ? 0 : 1); });
  expect_named([](int p, GroupOptions& o) { o.host = str("host", p / 2); });
}

// One that does not wait at all is told of all who are not there, and so are the others.
TEST(MakeCommunicatorsTest, WithoutPatienceEveryOneThatIsLateIsNamed) {
  for (const auto backend : {CommunicationBackend::kTcp, CommunicationBackend::kSharedMemory}) {
    std::vector<ConnectedGroup> processes = connect_group(4, 1, [&](int p, GroupOptions& o) {
      o.backend = backend;
      if (p == 0) o.limit = std::chrono::milliseconds(0);
    });
    Group ranks;
    for (auto& process : processes) ranks.push_back(std::move(process.communicators[0]));
    on_ranks(ranks, [](int rank, Communicator& communicator) {
      if (rank > 1) return;
      const Error error = error_of([&] { communicator.barrier(); });
      EXPECT_EQ(error.code(), Code::kDeadlineExceeded) << error.what();
      for (const char* late : {"rank 2 ", "rank 3 "})
        EXPECT_NE(error.message().find(late), std::string::npos) << error.what();
    });
  }
}

// What sets the processes of a group up, and what a rank of it does.
using Change = std::function<void(int, GroupOptions&)>;
using Part = std::function<void(int rank, Communicator& communicator)>;

// Of three tasks the last does its part when the first has said that it is missing in `call`.
void expect_warned(const std::string& call, const Part& part, const Change& change) {
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<std::string> lines;
  const auto notice = [&](const std::string& line) {
    const std::lock_guard lock(mutex);
    lines.push_back(line);
    changed.notify_all();
  };
  std::vector<ConnectedGroup> processes = connect_group(3, 1, [&](int p, GroupOptions& o) {
    o.tasks = {"chief:0", "worker:0", "worker:1"};
    o.stall = StallWarning{std::chrono::milliseconds(300), notice};
    change(p, o);
  });
  Group ranks;
  for (auto& process : processes) ranks.push_back(std::move(process.communicators[0]));
  on_ranks(ranks, [&](int rank, Communicator& communicator) {
    std::unique_lock lock(mutex);
    if (rank == 2) {
      EXPECT_TRUE(changed.wait_for(lock, kHangLimit, [&] { return !lines.empty(); }));
    }
    lock.unlock();
    part(rank, communicator);
  });
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_EQ(lines[0].find("warning: chief:0 (rank 0"), 0u) << lines[0];
  const std::string waited = str(" has waited for 0.3 s in ", call, " for worker:1 (rank 2");
  EXPECT_NE(lines[0].find(waited), std::string::npos) << lines[0];
}

// The same over TCP, in shared memory and on two levels, where hosts find out first whether all
// make it.
void expect_warned(const std::string& call, const Part& part) {
  expect_warned(call, part, [](int, GroupOptions& o) { o.backend = CommunicationBackend::kTcp; });
  expect_warned(call, part,
                [](int, GroupOptions& o) { o.backend = CommunicationBackend::kSharedMemory; });
  expect_warned(call, part, [](int p, GroupOptions& o) { o.host = str("host", p / 2); });
}

TEST(MakeCommunicatorsTest, WarnsOfATaskThatIsAwaitedForLong) {
  expect_warned("a barrier", [](int, Communicator& communicator) { communicator.barrier(); });
}

TEST(MakeCommunicatorsTest, WarnsOfATaskThatDoesNotTakeAMessage) {
  expect_warned("a send with tag 5", [](int rank, Communicator& communicator) {
    char byte = 'x';
    if (rank == 0) communicator.send(&byte, 1, 2, 5);
    if (rank == 2) communicator.receive(&byte, 1, 0, 5);
  });
}

TEST(MakeCommunicatorsTest, WarnsOfATaskThatDoesNotSendAMessage) {
  expect_warned("a receive", [](int rank, Communicator& communicator) {
    char byte = 'x';
    if (rank == 0) communicator.receive(&byte, 1, 2);
    if (rank == 2) communicator.send(&byte, 1, 0, 5);
  });
}

TEST(MakeCommunicatorsTest, TheEnvironmentSaysAfterWhatTimeThereIsAWarning) {
  const auto warning = [](const char* seconds) {
    return stall_warning_asked_for(
        [seconds](const std::string& name) -> std::optional<std::string> {
          if (name != "COHORT_STALL_WARNING_SECONDS" || seconds == nullptr) return std::nullopt;
          return seconds;
        });
  };
  EXPECT_EQ(warning(nullptr).after, std::chrono::seconds(60));
  EXPECT_EQ(warning("7").after, std::chrono::seconds(7));
  EXPECT_FALSE(warning("7").is_due(std::chrono::milliseconds(6999)));
  EXPECT_TRUE(warning("7").is_due(std::chrono::seconds(7)));
  EXPECT_FALSE(warning("0").is_due(std::chrono::hours(1000))) << "never";
  for (const char* wrong : {"-1", "x", "", "0.5"})
    EXPECT_EQ(error_of([&] { warning(wrong); }).code(), Code::kInvalidArgument) << wrong;
}

TEST(MakeCommunicatorsTest, WarnsOnStandardErrorAfterTheTimeThatTheEnvironmentSays) {
  setenv("COHORT_STALL_WARNING_SECONDS", "1", 1);
  const Group ranks = ranks_of(connect_group(2, 1,
                                             [](int, GroupOptions& o) {
                                               o.backend = CommunicationBackend::kSharedMemory;
                                               o.limit = std::chrono::milliseconds(1500);
                                             }),
                               "shared memory");
  unsetenv("COHORT_STALL_WARNING_SECONDS");
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(error_of([&] { ranks[0]->barrier(); }).code(), Code::kDeadlineExceeded);
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find(" has waited for 1 s in a barrier for rank 1"), std::string::npos) << said;
}

std::string content_of(const std::string& file) {
  std::ifstream in(file);
  return {std::istreambuf_iterator<char>(in), {}};
}

TEST(MakeCommunicatorsTest, ShowsInOneTableWhatTheRanksOfACallDidWhoseLimitIsOver) {
  const char* const folder = std::getenv("TEST_TMPDIR");
  const std::string file = str(folder == nullptr ? "/tmp" : folder, "/flights", getpid());
  setenv("COHORT_FLIGHT_RECORDER_FILE", file.c_str(), 1);
  const auto store = std::make_shared<InMemoryStore>();
  const Group ranks = ranks_of(connect_group(3, 1,
                                             [&](int, GroupOptions& o) {
                                               o.backend = CommunicationBackend::kTcp;
                                               o.limit = std::chrono::seconds(1);
                                               o.store_on_time_out = store;
                                             }),
                               "TCP");
  unsetenv("COHORT_FLIGHT_RECORDER_FILE");
  on_ranks(ranks, [](int rank, Communicator& communicator) {
    if (rank == 2) return;
    EXPECT_EQ(error_of([&] { communicator.barrier(); }).code(), Code::kDeadlineExceeded);
  });
  for (const int rank : {0, 1}) {
    const std::string own = str(file, ".rank", rank), table = content_of(own);
    for (const char* line : {"  rank 0 has begun 1 collectives", "  rank 1 has begun 1 collectives",
                             "  rank 2 has not answered"})
      EXPECT_NE(table.find(line), std::string::npos) << line << " in\n" << table;
    std::filesystem::remove(own);
  }
}

TEST(MakeCommunicatorsTest, AddsToAFileWithEachWarningWhatTheRankThatWarnsDidLast) {
  const char* const folder = std::getenv("TEST_TMPDIR");
  const std::string file = str(folder == nullptr ? "/tmp" : folder, "/stalls", getpid());
  for (const auto backend : {CommunicationBackend::kTcp, CommunicationBackend::kSharedMemory}) {
    std::promise<void> warned;
    std::future<void> is_warned = warned.get_future();
    setenv("COHORT_FLIGHT_RECORDER_FILE", file.c_str(), 1);
    std::vector<ConnectedGroup> processes = connect_group(2, 1, [&](int, GroupOptions& o) {
      o.backend = backend;
      o.stall = StallWarning{std::chrono::milliseconds(300),
                             [&](const std::string&) { warned.set_value(); }};
    });
    unsetenv("COHORT_FLIGHT_RECORDER_FILE");
    Group ranks;
    for (auto& process : processes) ranks.push_back(std::move(process.communicators[0]));
    on_ranks(ranks, [&](int rank, Communicator& communicator) {
      if (rank == 1) {
        EXPECT_EQ(is_warned.wait_for(kHangLimit), std::future_status::ready);
      }
      communicator.barrier();
    });
    const std::string table = content_of(file + ".rank0");
    for (const char* text : {" (warning: ", " has waited for 0.3 s in a barrier for ",
                             "  rank 0 has begun 1 collectives and 0 messages; 1 under way"})
      EXPECT_NE(table.find(text), std::string::npos) << text << " in\n" << table;
    EXPECT_EQ(content_of(file + ".rank1"), "") << "it has not waited for long";
    std::filesystem::remove(file + ".rank0");
  }
}

// What the first of two processes gets over TCP; the other one, which comes too, waits for it in
// vain.
Error error_of_first(GroupOptions options) {
  InMemoryStore store;
  options.store = &store;
  options.name = "group";
  options.processes = 2;
  options.backend = CommunicationBackend::kTcp;
  options.join_limit = std::chrono::milliseconds(300);
  GroupOptions other = options;
  other.process = 1;
  other.address = "127.0.0.1:0";
  const auto connect = [](const GroupOptions& o) {
    return error_of([&] { make_communicators(o); });
  };
  auto of_other = std::async(std::launch::async, [&] { return connect(other); });
  const Error error = connect(options);
  EXPECT_EQ(of_other.get().code(), Code::kDeadlineExceeded);
  return error;
}

// Two ranks of a process cannot listen on one port: who has it waits in vain for the other one.
TEST(MakeCommunicatorsTest, TellsWhyARankOfTheProcessDoesNotCome) {
  const std::string address =
      net::InternetAddress::of(net::listen_on(net::InternetAddress())).text();
  const Error error = error_of_first({.ranks_per_process = 2, .address = address});
  EXPECT_EQ(error.code(), Code::kFailedPrecondition) << error.what();
  EXPECT_NE(error.message().find("cannot listen at " + address + ": port "), std::string::npos)
      << error.message();
}

TEST(MakeCommunicatorsTest, RefusesPlaintextBeyondTheHost) {
  const Error error = error_of_first({.address = "192.0.2.1:0"});
  EXPECT_EQ(error.code(), Code::kFailedPrecondition);
  EXPECT_NE(error.message().find("192.0.2.1"), std::string::npos) << error.message();
}

}  // namespace
}  // namespace cohort::testing
