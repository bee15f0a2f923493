#include "strategies/cluster/reachability.h"

#include <arpa/inet.h>
#include <chrono>
#include <poll.h>
#include <stdexcept>
#include <sys/socket.h>
#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "strategies/cluster/check/cluster_check.h"
#include "strategies/cluster/literal_resolver.h"
#include "strategies/cluster/mpi_resolver.h"
#include "strategies/cluster/torchrun_resolver.h"
#include "tests/strategies/cluster/testing.h"

namespace cohort {
namespace {

using cohort::testing::environment;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using namespace std::chrono_literals;

// A socket bound to a free port of this host.
class Port {
 public:
  Port() : descriptor_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in local{};
    local.sin_family = AF_INET;
    local.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof local;
    if (bind(descriptor_, reinterpret_cast<sockaddr*>(&local), sizeof local) != 0 ||
        getsockname(descriptor_, reinterpret_cast<sockaddr*>(&local), &size) != 0) {
      throw std::runtime_error("no port to be had");
    }
    port_ = ntohs(local.sin_port);
  }
  ~Port() { close(descriptor_); }
  Port(const Port&) = delete;
  Port& operator=(const Port&) = delete;

  void listen(int backlog = 16) { ::listen(descriptor_, backlog); }
  // Whether somebody is in the queue. A client may be connected, in its own eyes, before that.
  bool await_connection() const {
    pollfd waiting{.fd = descriptor_, .events = POLLIN, .revents = 0};
    return poll(&waiting, 1, 10000) == 1;
  }
  Address address() const { return Address::of("127.0.0.1", port_); }

 private:
  int descriptor_;
  int port_ = 0;
};

// A client of a port, for as long as it lives.
class Connection {
 public:
  explicit Connection(const Port& port)
      : descriptor_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    to.sin_port = htons(static_cast<uint16_t>(port.address().port()));
    if (connect(descriptor_, reinterpret_cast<sockaddr*>(&to), sizeof to) != 0) {
      throw std::runtime_error("cannot connect");
    }
  }
  ~Connection() { close(descriptor_); }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

 private:
  int descriptor_;
};

TEST(Reachability, TellsListenersFromOthers) {
  Port listening, silent;
  listening.listen();
  const auto results = probe({listening.address(), silent.address(), listening.address()}, 5s);
  EXPECT_TRUE(results[0].reachable);
  EXPECT_THAT(results[0].detail, HasSubstr("ms"));
  EXPECT_FALSE(results[1].reachable);
  EXPECT_THAT(results[1].detail, HasSubstr("refused"));
  EXPECT_TRUE(results[2].reachable);
}

TEST(Reachability, NobodyToTry) { EXPECT_THAT(probe({}, 5s), IsEmpty()); }

TEST(Reachability, AnUnknownNameIsSaidToBeUnknown) {
  const auto results = probe({Address::parse("no-such-host.invalid:80")}, 5s);
  EXPECT_FALSE(results[0].reachable);
  EXPECT_THAT(results[0].detail, HasSubstr("name"));
}

TEST(Reachability, AHostThatDoesNotAnswerTakesNoLongerThanTheTimeout) {
  // A listener that never accepts drops whoever comes once its queue is full.
  Port full;
  full.listen(0);
  const Connection first(full);
  ASSERT_TRUE(full.await_connection());
  const auto begin = std::chrono::steady_clock::now();
  const auto results = probe(std::vector<Address>(300, full.address()), 100ms);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 30s);  // the system would try for minutes
  for (const Reachability& result : results) {
    EXPECT_FALSE(result.reachable);
    EXPECT_THAT(result.detail, HasSubstr("no answer within 100 ms"));
  }
}

TEST(Reachability, ListeningNeedsAFreePort) {
  Port taken;
  taken.listen();
  EXPECT_FALSE(probe_listening(taken.address()).reachable);
  EXPECT_THAT(probe_listening(taken.address()).detail, HasSubstr("in use"));
  EXPECT_FALSE(probe_listening(Address::parse("192.0.2.1:80")).reachable);  // no address of ours
  Address free = taken.address();
  {
    Port other;
    free = other.address();
  }
  EXPECT_TRUE(probe_listening(free).reachable);
}

ResolvedCluster two_workers(const Address& own, const Address& other) {
  return {std::make_shared<LiteralResolver>(
              ClusterSpec(ClusterSpec::Jobs{{"worker", {own.text(), other.text()}}}),
              LiteralResolverOptions{.task_type = "worker", .task_id = 0}),
          "the test says so"};
}

Address free_address() { return Port().address(); }

TEST(ClusterCheck, ShowsWhatIsKnownFromWhereAndWhoAnswers) {
  Port other;
  other.listen();
  const auto check = check_cluster(two_workers(free_address(), other.address()), 5s);
  EXPECT_THAT(check.unreachable(), IsEmpty());
  const std::string table = check.table();
  for (const std::string& part :
       {std::string("cluster from literal: the test says so"),
        std::string("this is worker:0, rank 0 of 2"), other.address().text(),
        std::string("the program"), std::string("port is free")}) {
    EXPECT_THAT(table, HasSubstr(part));
  }
}

TEST(ClusterCheck, NamesWhoCannotBeReached) {
  const Port silent;
  const auto check = check_cluster(two_workers(free_address(), silent.address()), 5s);
  EXPECT_THAT(check.unreachable(), ElementsAre("worker:1"));
  EXPECT_THAT(check.table(), HasSubstr("refused"));
}

TEST(ClusterCheck, WhoListensAtTheLeadersAddressHasToAnswerAsALeaderDoes) {
  Port silent;
  silent.listen();
  const auto check_as = [&](const ClusterSpec::Jobs& others) {
    ClusterSpec::Jobs jobs = others;
    jobs["chief"] = {silent.address().text()};
    return check_cluster(
        {std::make_shared<LiteralResolver>(
             ClusterSpec(jobs), LiteralResolverOptions{.task_type = "worker", .task_id = 0}),
         "the test says so"},
        500ms);
  };
  const std::string own = free_address().text();
  const auto begin = std::chrono::steady_clock::now();
  const auto check = check_as({{"worker", {own}}});
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 3s);
  EXPECT_THAT(check.unreachable(), ElementsAre("chief:0"));
  EXPECT_THAT(check.table(), HasSubstr("no, asked in plain text: somebody listens there, but "));
  // Nobody leads where there are parameter servers.
  EXPECT_TRUE(
      check_as({{"worker", {own}}, {"ps", {"127.0.0.1:1"}}}).peers[0].reachability.reachable);
}

TEST(ClusterCheck, WithoutATimeoutNobodyIsTried) {
  const Port silent;
  EXPECT_THAT(check_cluster(two_workers(free_address(), silent.address()), 0s).unreachable(),
              IsEmpty());
}

TEST(ClusterCheck, TriesTheLeaderWhereNoOthersAreKnown) {
  const Port silent;
  const auto resolver = std::make_shared<TorchrunResolver>(
      environment({{"RANK", "1"},
                   {"WORLD_SIZE", "2"},
                   {"MASTER_ADDR", "127.0.0.1"},
                   {"MASTER_PORT", std::to_string(silent.address().port())}}));
  const auto check = check_cluster({resolver, "the test says so"}, 5s);
  EXPECT_THAT(check.unreachable(), ElementsAre("leader"));
}

TEST(ClusterCheck, ALeaderOfOthersThatIsNotKnownCannotBeReached) {
  for (const char* rank : {"0", "1"}) {
    const auto resolver = std::make_shared<MpiResolver>(
        environment({{"PMI_RANK", rank},
                     {"PMI_SIZE", "2"},
                     {"MPI_LOCALRANKID", "0"},
                     {"MPI_LOCALNRANKS", "1"}}),
        [](int) -> std::string { fail(Code::kUnavailable, "nobody knows"); });
    const auto check = check_cluster({resolver, "the test says so"}, 5s);
    EXPECT_THAT(check.unreachable(), ElementsAre("leader"));
    EXPECT_THAT(check.table(), HasSubstr("no, MASTER_ADDR is not set, and nobody knows"));
    const auto leader = nlohmann::json::parse(check.json())["peers"][0];
    EXPECT_TRUE(leader["address"].is_null());
    EXPECT_EQ(leader["reachable"], false);
    EXPECT_EQ(leader["detail"], "MASTER_ADDR is not set, and nobody knows");
  }
  const auto alone = std::make_shared<MpiResolver>(
      environment({{"PMI_RANK", "0"}, {"PMI_SIZE", "1"}}),
      [](int) -> std::string { fail(Code::kUnavailable, "nobody knows"); });
  EXPECT_THAT(check_cluster({alone, "the test says so"}, 5s).unreachable(), IsEmpty());
}

TEST(ClusterCheck, JsonHasTheSameFacts) {
  Port other;
  other.listen();
  const Address own = free_address();
  const auto json =
      nlohmann::json::parse(check_cluster(two_workers(own, other.address()), 5s).json());
  EXPECT_EQ(json["launcher"], "literal");
  EXPECT_EQ(json["task"]["type"], "worker");
  EXPECT_EQ(json["task"]["index"], 0);
  EXPECT_EQ(json["world"]["size"], 2);
  EXPECT_EQ(json["leader"], own.text());
  EXPECT_EQ(json["cluster"]["worker"][1], other.address().text());
  EXPECT_EQ(json["facts"][1]["source"], "the program");
  EXPECT_EQ(json["peers"][1]["name"], "worker:1");
  EXPECT_EQ(json["peers"][1]["reachable"], true);
}

TEST(ClusterCheck, AParameterServerHasNoRank) {
  const auto resolver = std::make_shared<LiteralResolver>(
      ClusterSpec(ClusterSpec::Jobs{{"worker", {"a:1"}}, {"ps", {"b:1"}}}),
      LiteralResolverOptions{.task_type = "ps", .task_id = 0});
  const auto check = check_cluster({resolver, "the test says so"}, 0s);
  EXPECT_THAT(check.table(), HasSubstr("this is ps:0, led from a:1"));
  EXPECT_FALSE(nlohmann::json::parse(check.json()).contains("world"));
}

}  // namespace
}  // namespace cohort
