#include <cerrno>
#include <cstdio>
#include <fstream>
#include <functional>
#include <future>
#include <map>
#include <mutex>
#include <poll.h>
#include <set>
#include <sys/mount.h>
#include <system_error>
#include <thread>
#include <utility>

#include "core/base/notice.h"
#include "core/base/program.h"
#include "strategies/cluster/coordination/in_memory_store.h"
#include "strategies/cluster/net/socket.h"
#include "strategies/collective/tcp/frame.h"
#include "tests/strategies/collective/tcp/tcp_group.h"
#include "tests/testing/eventually.h"
#include "tests/testing/few_descriptors.h"
#include "tests/testing/resources.h"
#include "tests/testing/small_disk.h"

namespace cohort::testing {
namespace {

using std::chrono::milliseconds;

TEST(TcpCommunicatorTest, ACallThatWaitsTooLongNamesTheRankThatDidNotMakeIt) {
  for (const int size : {2, 4, 5}) {
    // Enough for all to make the first call on a busy machine.
    const Group group = make_tcp_group(size, {.timeout = std::chrono::seconds(2)});
    on_ranks(group, [&](int rank, Communicator& communicator) {
      communicator.barrier();
      if (rank == size - 1) return;
      const Error error = error_of([&] { communicator.barrier(); });
      EXPECT_EQ(error.code(), Code::kDeadlineExceeded);
      const std::string absent = str("for rank ", size - 1, " at 127.0.0.1:");
      EXPECT_NE(error.message().find(absent), std::string::npos) << error.message();
      EXPECT_NE(error.message().find("did not make the call"), std::string::npos);
    });
  }
}

TEST(TcpCommunicatorTest, AReceiveThatWaitsTooLongNamesWhomItWaitedFor) {
  const Group group = make_tcp_group(2, {.timeout = milliseconds(200)});
  char byte;
  const Error error = error_of([&] { group[0]->receive(&byte, 1, 1, 3); });
  EXPECT_EQ(error.code(), Code::kDeadlineExceeded);
  EXPECT_NE(error.message().find("from rank 1 at 127.0.0.1:"), std::string::npos)
      << error.message();
  EXPECT_EQ(error_of([&] { group[1]->barrier(); }).code(), Code::kDeadlineExceeded);
}

// Though all that the late rank needs lies in its sockets.
TEST(TcpCommunicatorTest, ACallThatOthersHaveGivenUpIsMadeByNobody) {
  const Group group = make_tcp_group(2, {.timeout = milliseconds(200)});
  for (const auto& communicator : group)
    EXPECT_EQ(error_of([&] { communicator->barrier(); }).code(), Code::kDeadlineExceeded);
}

TEST(TcpCommunicatorTest, TellsForHowLongWhatARankHasSentKeptTheNetworkBusy) {
  std::mutex mutex;
  std::map<std::string, std::chrono::microseconds> sent;
  const auto hear = [&](const std::string& task, std::chrono::microseconds time) {
    const std::lock_guard lock(mutex);
    EXPECT_GE(time.count(), 0);
    sent[task] += time;
  };
  const Group group = make_tcp_group(2, {.tasks = {"worker:0", "worker:1"}, .on_sent = hear});
  on_ranks(group, [](int, Communicator& communicator) {
    std::vector<float> values(size_t{16} << 20, 1);  // enough to be worth telling
    const Segment segment{values.data(), values.data(), static_cast<int64_t>(values.size())};
    communicator.all_reduce({&segment, 1}, DType::kFloat32, ReduceOp::kSum);
  });
  EXPECT_EQ(sent.size(), 2u);
  EXPECT_TRUE(sent.contains("worker:0"));
  EXPECT_TRUE(sent.contains("worker:1"));
}

TEST(TcpCommunicatorTest, AMistakeOfOneRankIsSaidToBeItsOwnOnAllRanks) {
  const Group group = make_tcp_group(3, {.tasks = {"worker:0", "worker:1", "worker:2"}});
  on_ranks(group, [](int rank, Communicator& communicator) {
    communicator.barrier();
    int64_t value = 0;
    const Error error =
        error_of([&] { communicator.broadcast(&value, &value, sizeof value, rank == 2 ? -1 : 0); });
    EXPECT_EQ(error.code(), Code::kInvalidArgument) << error.what();
    for (const char* part : {"worker:2 (rank 2) at 127.0.0.1:", " in its collective 2, ",
                             "a broadcast of 8 bytes from rank -1: the root must be a rank"})
      EXPECT_NE(error.message().find(part), std::string::npos) << error.message();
    EXPECT_EQ(error.peer(), "worker:2");
  });
}

// Rank 2 sends rank 0 half of what that expects, and comes when the others have told each other
// that they wait for it.
TEST(TcpCommunicatorTest, SizesThatDoNotFitAreNamedAfterAStallToo) {
  std::once_flag warned;
  std::promise<void> warning;
  const auto notice = [&](const std::string&) {
    std::call_once(warned, [&] { warning.set_value(); });
  };
  const auto has_warned = warning.get_future().share();
  const Group group =
      make_tcp_group(3, {.timeout = std::chrono::seconds(60), .stall = {milliseconds(50), notice}});
  on_ranks(group, [&](int rank, Communicator& communicator) {
    std::vector<int64_t> out(3, 8);
    const std::vector<int64_t> in(3, 8);
    if (rank == 2) {
      EXPECT_EQ(has_warned.wait_for(kHangLimit), std::future_status::ready);
      out[0] = 4;
    }
    const std::vector<char> source(24, 'x');
    std::vector<char> target(24);
    const Error error =
        error_of([&] { communicator.all_to_all(source.data(), out, target.data(), in); });
    EXPECT_EQ(error.code(), Code::kInvalidArgument) << error.what();
    for (const char* part : {"in its collective 1 rank 2 asks for an all-to-all", "and rank 0 for"})
      EXPECT_NE(error.message().find(part), std::string::npos) << error.message();
  });
}

// What rank 2 gets in the call in which it waits, while `work` does something to the group. Ranks
// are told of that one after the other, so that rank 1, which waits for nothing, has been told,
// too.
Error error_of_rank_2(const Group& group, const std::function<void()>& work) {
  Error error(Code::kUnknown, "");
  std::thread waiting([&] { error = error_of([&] { group[2]->barrier(); }); });
  work();
  waiting.join();
  return error;
}

TEST(TcpCommunicatorTest, AnErrorThatWasToldComesBeforeOneThatIsGivenLater) {
  const Group group = make_tcp_group(3);
  const Error first(Code::kDeadlineExceeded, "rank 1 does not come", "worker:1");
  EXPECT_EQ(error_of_rank_2(group, [&] { group[0]->abort(first); }).message(), first.message());
  group[1]->abort(Error(Code::kUnavailable, "worker:0 has left the job", "worker:0"));
  const Error error = error_of([&] { group[1]->barrier(); });
  EXPECT_EQ(error.code(), first.code());
  EXPECT_EQ(error.message(), first.message());
  EXPECT_EQ(error.peer(), first.peer());
}

TEST(TcpCommunicatorTest, WhyARankIsGoneTheApplicationKnowsBetter) {
  Group group = make_tcp_group(3);
  EXPECT_EQ(error_of_rank_2(group, [&] { group[0].reset(); }).code(), Code::kUnavailable);
  group[1]->abort(Error(Code::kUnavailable, "worker:0 was started again", "worker:0"));
  EXPECT_EQ(error_of([&] { group[1]->barrier(); }).message(), "worker:0 was started again");
}

// 2 (N - 1) / N times the value by each of N ranks, as in a ring.
TEST(TcpCommunicatorTest, AnAllReduceSendsNoMoreThanIsNeeded) {
  constexpr int64_t kCount = 1'000'000;
  constexpr double kMore = 0.02;  // what frames add
  for (const int size : {2, 4}) {
    const Group group = make_tcp_group(size);
    const double sent = times_sent(group, kCount * 4, [](int, Communicator& communicator) {
      std::vector<float> data(kCount, 1);
      const Segment segment{data.data(), data.data(), kCount};
      communicator.all_reduce({&segment, 1}, DType::kFloat32, ReduceOp::kSum);
    });
    EXPECT_NEAR(sent / size, 2.0 * (size - 1) / size, kMore);
  }
}

TEST(TcpCommunicatorTest, WorksOverIPv6) {
  on_ranks(make_tcp_group(3, {.address = "[::1]:0"}), [](int rank, Communicator& communicator) {
    int64_t value = rank;
    const Segment segment{&value, &value, 1};
    communicator.all_reduce({&segment, 1}, DType::kInt64, ReduceOp::kSum);
    EXPECT_EQ(value, 3);
  });
}

TEST(TcpCommunicatorTest, RanksThatDoNotComeAreNamed) {
  InMemoryStore store;
  const Error error =
      error_of([&] { make_tcp_communicator(store, 0, 3, {.join_timeout = milliseconds(100)}); });
  EXPECT_EQ(error.code(), Code::kDeadlineExceeded);
  EXPECT_NE(error.message().find("rank 1, rank 2 of 3 to join"), std::string::npos)
      << error.message();
}

TEST(TcpCommunicatorTest, WrongOptionsAreRefused) {
  InMemoryStore store;
  const auto refused = [&](int rank, int size, const TcpOptions& options) {
    return error_of([&] { make_tcp_communicator(store, rank, size, options); });
  };
  EXPECT_EQ(refused(0, 0, {}).code(), Code::kInvalidArgument);
  EXPECT_EQ(refused(2, 2, {}).code(), Code::kInvalidArgument);
  EXPECT_EQ(refused(-1, 2, {}).code(), Code::kInvalidArgument);
  for (const char* address : {"", "localhost", "::1:80", "127.0.0.1:70000", "127.0.0.1:x"})
    EXPECT_EQ(refused(0, 2, {.address = address}).code(), Code::kInvalidArgument) << address;
  EXPECT_EQ(refused(0, 2, {.address = "0.0.0.0:0", .allow_plaintext = true}).code(),
            Code::kInvalidArgument);
  const Error plaintext = refused(0, 2, {.address = "192.0.2.1:0"});
  EXPECT_EQ(plaintext.code(), Code::kFailedPrecondition);
  EXPECT_NE(plaintext.message().find("COHORT_ALLOW_PLAINTEXT=1"), std::string::npos);
}

TEST(TcpCommunicatorTest, ASecondRankOfTheSameNumberIsRefused) {
  InMemoryStore store;
  std::thread other([&] {
    error_of([&] { make_tcp_communicator(store, 0, 2, {.join_timeout = milliseconds(300)}); });
  });
  store.get("tcp/group/0", std::chrono::seconds(10));
  EXPECT_EQ(error_of([&] { make_tcp_communicator(store, 0, 2, {}); }).code(), Code::kAlreadyExists);
  other.join();
}

// One rank gets the last descriptor that there is.
TEST(TcpCommunicatorTest, ARankThatCannotListenForItsPartIsNamedOnAllRanks) {
  const Group group =
      make_tcp_group(2, {.tasks = {"worker:0", "worker:1"}, .timeout = std::chrono::seconds(10)});
  std::vector<std::string> errors(2);
  const FewDescriptors one(1);
  on_ranks(group, [&](int rank, Communicator& communicator) {
    communicator.barrier();
    const Error error = error_of([&] { communicator.split(0); });
    EXPECT_EQ(error.code(), Code::kResourceExhausted) << error.what();
    EXPECT_NE(error.message().find(error.peer() + " (rank "), std::string::npos) << error.what();
    errors[static_cast<size_t>(rank)] = error.what();
    communicator.barrier();  // the group lives
  });
  EXPECT_EQ(errors[0], errors[1]);
}

// Tells which keys it holds.
class ListingStore : public InMemoryStore {
 public:
  void set(std::string_view key, std::string_view value) override {
    const std::lock_guard lock(mutex_);
    InMemoryStore::set(key, value);
    keys_.emplace(key);
  }
  int64_t add(std::string_view key, int64_t amount) override {
    const std::lock_guard lock(mutex_);
    keys_.emplace(key);
    return InMemoryStore::add(key, amount);
  }
  void erase(std::string_view key) override {
    const std::lock_guard lock(mutex_);
    InMemoryStore::erase(key);
    keys_.erase(std::string(key));
  }
  const std::set<std::string>& keys() const { return keys_; }

 private:
  std::mutex mutex_;
  std::set<std::string> keys_;
};

TEST(TcpCommunicatorTest, AGroupLeavesOneKeyInTheStoreAndEveryRankStillJoinsOnce) {
  ListingStore store;
  Group group(2);
  std::thread first([&] { group[0] = make_tcp_communicator(store, 0, 2); });
  group[1] = make_tcp_communicator(store, 1, 2);
  first.join();
  const std::set<std::string> left{"tcp/group/token"};
  EXPECT_EQ(store.keys(), left);
  for (const int rank : {0, 1})
    EXPECT_EQ(error_of([&] { make_tcp_communicator(store, rank, 2); }).code(),
              Code::kAlreadyExists);
  EXPECT_EQ(store.keys(), left);
  on_ranks(group, [](int /*rank*/, Communicator& communicator) { communicator.barrier(); });
}

// Whoever else calls the port of a rank while its group forms.
TEST(TcpCommunicatorTest, StrangersDoNotDisturbAGroupThatForms) {
  InMemoryStore store;
  Group group(2);
  std::thread first([&] { group[0] = make_tcp_communicator(store, 0, 2); });
  const auto endpoint = net::InternetAddress::parse(
      store.get("tcp/group/0", std::chrono::seconds(10)), "the address of rank 0");
  std::vector<net::Descriptor> strangers;
  for (int i = 0; i < 200; ++i) {
    strangers.push_back(net::start_connecting(endpoint));
    pollfd polled{strangers.back().get(), POLLOUT, 0};
    ASSERT_EQ(poll(&polled, 1, 10'000), 1);
    tcp::Hello hello{.token = {1, 2}, .size = 2, .from = 1, .to = 0};
    if (i % 4 == 1) seal(hello);
    // Nothing, another group's greeting, a wrong one, a part of one.
    if (i % 4 > 0)
      send(strangers.back().get(), &hello, i % 4 == 3 ? 7 : sizeof hello, MSG_NOSIGNAL);
  }
  group[1] = make_tcp_communicator(store, 1, 2);
  first.join();
  on_ranks(group, [](int /*rank*/, Communicator& communicator) { communicator.barrier(); });
}

// One of two ends while the other is in its next call, or on the way there.
void start_and_end(int leaver) {
  const auto at = [](int rank) { return static_cast<size_t>(rank); };
  Group group = make_tcp_group(2);
  const auto add_up = [&](int rank) {
    int64_t value = rank + 1;
    const Segment segment{&value, &value, 1};
    group[at(rank)]->all_reduce({&segment, 1}, DType::kInt64, ReduceOp::kSum);
    EXPECT_EQ(value, 3);
  };
  std::jthread leaving([&] {
    add_up(leaver);
    group[at(leaver)].reset();
  });
  const int stayer = 1 - leaver;
  add_up(stayer);
  EXPECT_EQ(error_of([&] { group[at(stayer)]->barrier(); }).code(), Code::kUnavailable);
}

TEST(TcpCommunicatorTest, AThousandGroupsLeaveNothingBehind) {
  Resources before;
  for (int number = 0; number < 1000 && !HasFailure(); ++number) {
    if (number == 100) before = resources_of();
    SCOPED_TRACE(str("group ", number));
    start_and_end(number % 2);
  }
  // The system may list a thread for a moment after it was joined.
  EXPECT_TRUE(eventually([&] { return resources_of().threads <= before.threads; }));
  EXPECT_EQ(resources_of().descriptors, before.descriptors);
}

TEST(TcpCommunicatorTest, AnOwnAddressThatIsNotOfThisHostIsAnErrorAtOnce) {
  InMemoryStore store;
  const Error error = error_of([&] {
    make_tcp_communicator(store, 1, 2,
                          {.address = "192.0.2.9:0",
                           .address_as_written = "192.0.2.9:2222 (TF_CONFIG.cluster.worker[1])",
                           .allow_plaintext = true});
  });
  EXPECT_EQ(error.code(), Code::kFailedPrecondition);
  EXPECT_EQ(error.message(),
            "cannot listen at 192.0.2.9:2222 (TF_CONFIG.cluster.worker[1]): it is no address of "
            "this host; check on which host this task is to run");
}

TEST(TcpCommunicatorTest, AnOwnNameThatStaysUnknownIsAMistakeOfItsRank) {
  InMemoryStore store;
  const Error error = error_of([&] {
    make_tcp_communicator(store, 1, 2,
                          {.address = "no-such-host.invalid:0",
                           .address_as_written = "no-such-host.invalid:2222 (TF_CONFIG)",
                           .tasks = {"worker:0", "worker:1"},
                           .join_timeout = milliseconds(300)});
  });
  EXPECT_EQ(error.code(), Code::kFailedPrecondition);
  for (const char* part : {"worker:1 has waited for ",
                           " for its own address: no-such-host.invalid:2222 (TF_CONFIG): the name "
                           "no-such-host.invalid is not known"})
    EXPECT_NE(error.message().find(part), std::string::npos) << error.message();
}

// Of a job that has failed.
class FailedStore : public InMemoryStore {
 public:
  void check() const override { fail(Code::kUnavailable, "worker:0 is lost"); }
};

TEST(TcpCommunicatorTest, NobodyWaitsForAnOwnNameAfterAFailureOrAnInterrupt) {
  const TcpOptions options{.address = "no-such-host.invalid:0", .join_timeout = kHangLimit};
  FailedStore failed;
  EXPECT_EQ(error_of([&] { make_tcp_communicator(failed, 1, 2, options); }).message(),
            "worker:0 is lost");
  InMemoryStore store;
  request_stop(StopRequest::kInterrupt);
  const Error error = error_of([&] { make_tcp_communicator(store, 1, 2, options); });
  init();  // forgets it
  EXPECT_EQ(error.code(), Code::kCancelled);
  EXPECT_NE(error.message().find("no-such-host.invalid is not known"), std::string::npos)
      << error.message();
}

// What this process has as /etc/hosts; it has mounts of its own.
class OwnHosts {
 public:
  explicit OwnHosts(const std::string& name) {
    write(name);
    if (mount(file_.c_str(), kHosts, nullptr, MS_BIND, nullptr) != 0)
      throw std::system_error(errno, std::generic_category(), kHosts);
  }
  ~OwnHosts() {
    umount2(kHosts, MNT_DETACH);
    std::remove(file_.c_str());
  }
  OwnHosts(const OwnHosts&) = delete;
  OwnHosts& operator=(const OwnHosts&) = delete;

  // `name`: "127.0.0.1 h1"
  void write(const std::string& name) {
    std::ofstream(file_) << "127.0.0.1 localhost\n" << name << '\n';
  }

 private:
  static constexpr const char* kHosts = "/etc/hosts";
  const std::string file_ = ::testing::TempDir() + "own_hosts";
};

// Rank 1 is late.invalid, which stands for 127.0.0.1 once it has waited for 5 s, and before that
// for what `before` says.
void expect_waits_for_own_name(const std::string& before, const std::string& why) {
  OwnHosts hosts(before);
  std::promise<std::string> promise;
  set_notice_sink([&, told = false](std::string_view lines) mutable {
    if (lines.find(": waiting for ") != std::string_view::npos && !std::exchange(told, true))
      promise.set_value(std::string(lines));
  });
  InMemoryStore store;
  Group group(2);
  const auto join = [&](int rank, const std::string& address) {
    group[static_cast<size_t>(rank)] = make_tcp_communicator(store, rank, 2,
                                                             {.address = address,
                                                              .allow_plaintext = true,
                                                              .tasks = {"worker:0", "worker:1"},
                                                              .join_timeout = kHangLimit});
  };
  auto first = std::async(std::launch::async, join, 0, "127.0.0.1:0");
  auto second = std::async(std::launch::async, join, 1, "late.invalid:0");
  auto line = promise.get_future();
  const bool told = line.wait_for(kHangLimit) == std::future_status::ready;
  hosts.write("127.0.0.1 late.invalid");
  first.get();
  second.get();
  set_notice_sink({});
  ASSERT_TRUE(told);
  const std::string text = line.get();
  for (const std::string& part :
       {std::string("cohort: worker:1: waiting for its own address since "), why})
    EXPECT_NE(text.find(part), std::string::npos) << text;
  on_ranks(group, [](int /*rank*/, Communicator& communicator) { communicator.barrier(); });
}

TEST(TcpCommunicatorTest, AnOwnNameThatBecomesKnownLateIsWaitedFor) {
  if (!SmallDisk::refusal().empty()) GTEST_SKIP() << SmallDisk::refusal();
  expect_waits_for_own_name("", "the name late.invalid is not known");
}

// As when the host that had it before is gone, and not all have heard of it.
TEST(TcpCommunicatorTest, AnOwnNameThatStillStandsForAnotherHostIsWaitedFor) {
  if (!SmallDisk::refusal().empty()) GTEST_SKIP() << SmallDisk::refusal();
  expect_waits_for_own_name("192.0.2.9 late.invalid", "it is no address of this host");
}

}  // namespace
}  // namespace cohort::testing
