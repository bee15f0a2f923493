#include "strategies/cluster/coordination/own_host.h"

#include <chrono>
#include <sys/socket.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "strategies/cluster/literal_resolver.h"
#include "strategies/cluster/mpi_resolver.h"
#include "strategies/cluster/net/socket.h"
#include "strategies/cluster/torchrun_resolver.h"
#include "tests/testing/error_of.h"

namespace cohort {
namespace {

using cohort::testing::error_of;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

LiteralResolver worker(int task, const std::vector<std::string>& addresses) {
  return LiteralResolver(ClusterSpec({{"worker", addresses}}),
                         {.task_type = "worker", .task_id = task});
}

// One of two whose addresses are not known, but for where rank 0 listens.
TorchrunResolver ranked(int rank, int port) {
  return TorchrunResolver([=](const std::string& name) -> std::optional<std::string> {
    if (name == "RANK") return std::to_string(rank);
    if (name == "WORLD_SIZE") return "2";
    if (name == "MASTER_ADDR") return "127.0.0.1";
    if (name == "MASTER_PORT") return std::to_string(port);
    return {};
  });
}

const std::function<std::optional<Error>()> kWell = [] { return std::optional<Error>(); };

// 0x7f000001 is a name of 127.0.0.1, as a host's own is in some /etc/hosts.
TEST(OwnName, OfALoopbackAddressIsAnErrorWhereTasksAreElsewhere) {
  const Error error = error_of([] {
    check_own_name(worker(0, {"0x7f000001:2222", "10.0.0.2:2222"}));
  });
  EXPECT_EQ(error.code(), Code::kFailedPrecondition);
  EXPECT_THAT(error.message(),
              AllOf(HasSubstr("0x7f000001, which stands for 127.0.0.1"), HasSubstr("/etc/hosts"),
                    HasSubstr("by their addresses"), HasSubstr("worker:1 at 10.0.0.2:2222")));
}

TEST(OwnName, ThatIsALoopbackAddressIsToBeWrittenAnewWhereItStands) {
  for (const std::string own : {"127.0.1.1:2222", "[::1]:2222", "localhost:2222"}) {
    const Error error = error_of([&] { check_own_name(worker(0, {own, "10.0.0.2:2222"})); });
    EXPECT_EQ(error.code(), Code::kFailedPrecondition) << own;
    EXPECT_THAT(error.message(),
                AllOf(HasSubstr("this task is at " + own + " (the program), where worker:1 at"),
                      HasSubstr("write the address at which others reach this host there"),
                      Not(HasSubstr("/etc/hosts"))));
  }
}

TEST(OwnName, OfALeaderOfSeveralHostsIsNoLoopbackAddress) {
  const auto rank_of_several = [](const char* rank) {
    return MpiResolver(
        [=](const std::string& name) -> std::optional<std::string> {
          if (name == "OMPI_COMM_WORLD_RANK") return rank;
          if (name == "OMPI_COMM_WORLD_SIZE") return "4";
          if (name == "OMPI_COMM_WORLD_LOCAL_SIZE") return "2";
          return {};
        },
        [](int) { return "127.0.1.1"; });
  };
  const Error error = error_of([&] { check_own_name(rank_of_several("0")); });
  EXPECT_EQ(error.code(), Code::kFailedPrecondition);
  EXPECT_THAT(error.message(),
              AllOf(HasSubstr("127.0.1.1"), HasSubstr("the ranks of other hosts"),
                    HasSubstr("set MASTER_ADDR to it"), Not(HasSubstr("/etc/hosts"))));
  check_own_name(rank_of_several("1"));
}

TEST(OwnName, OfALeaderThatTorchrunNamesIsNoLoopbackAddressEither) {
  const auto rank_of_several = [](const char* rank, const char* leader) {
    return TorchrunResolver([=](const std::string& name) -> std::optional<std::string> {
      if (name == "RANK") return rank;
      if (name == "WORLD_SIZE") return "4";
      if (name == "LOCAL_WORLD_SIZE") return "2";
      if (name == "MASTER_ADDR") return leader;
      if (name == "MASTER_PORT") return "2222";
      return {};
    });
  };
  // A name that stands for 127.0.0.1 on every host.
  const Error error = error_of([&] { check_own_name(rank_of_several("0", "0x7f000001")); });
  EXPECT_EQ(error.code(), Code::kFailedPrecondition);
  EXPECT_THAT(error.message(),
              AllOf(HasSubstr("0x7f000001, which stands for 127.0.0.1"),
                    HasSubstr("the ranks of other hosts"), HasSubstr("--local-addr")));
  check_own_name(rank_of_several("2", "0x7f000001"));
  check_own_name(rank_of_several("0", "127.0.0.1"));
}

TEST(OwnName, IsFineOnOneHostAndWhereItIsAnAddressOfTheNetwork) {
  check_own_name(worker(0, {"127.0.1.1:2222", "127.0.0.1:2223"}));
  check_own_name(worker(0, {"10.0.0.1:2222", "127.0.0.1:2222"}));
  check_own_name(worker(1, {"10.0.0.1:2222", "10.0.0.2:2222"}));
  check_own_name(worker(0, {"127.0.0.1:2222", "a-host-that-nobody-knows.invalid:2222"}));
  check_own_name(LiteralResolver());
  check_own_name(ranked(0, 2222));
}

TEST(OwnHost, IsWhatTheClusterCallsItOrWhatReachesTheLeader) {
  EXPECT_EQ(own_host(worker(1, {"10.0.0.1:2222", "10.0.0.2:2222"}), kWell), "10.0.0.2");
  const auto leader = net::listen_on(net::InternetAddress());
  EXPECT_EQ(own_host(ranked(1, net::InternetAddress::of(leader).port()), kWell), "127.0.0.1");
  EXPECT_EQ(own_host(ranked(0, 2222), kWell), "127.0.0.1");
}

TEST(OwnAddress, IsTheOneThatWasWrittenAndWhere) {
  EXPECT_EQ(own_address_as_written(worker(1, {"10.0.0.1:2222", "[0:0::2]:2222"})),
            "[::2]:2222 (the program)");
  EXPECT_THAT(own_address_as_written(ranked(0, 2222)), HasSubstr(" (MASTER_ADDR, MASTER_PORT"));
  EXPECT_EQ(own_address_as_written(ranked(1, 2222)), "");
}

// What is sent to a listener whose queue is full is lost, as on the way to a host that is cut off.
TEST(OwnHost, IsNotWaitedForWhenTheJobHasFailed) {
  const net::InternetAddress any;
  const net::Descriptor leader = any.socket();
  ASSERT_EQ(any.bind(leader), 0);
  ASSERT_EQ(listen(leader.get(), 0), 0);
  const auto address = net::InternetAddress::of(leader);
  const net::Descriptor queue[] = {net::start_connecting(address), net::start_connecting(address)};
  const auto began = std::chrono::steady_clock::now();
  int asked = 0;
  const auto failed_at_last = [&]() -> std::optional<Error> {
    if (++asked < 3) return {};
    return Error(Code::kUnavailable, "the leader cannot be reached", "worker:0");
  };
  EXPECT_EQ(error_of([&] { own_host(ranked(1, address.port()), failed_at_last); }).peer(),
            "worker:0");
  EXPECT_EQ(asked, 3);
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(3));
}

}  // namespace
}  // namespace cohort
