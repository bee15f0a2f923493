#include "strategies/cluster/launcher/agent.h"

#include <chrono>
#include <csignal>
#include <sys/socket.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "strategies/cluster/net/socket.h"
#include "tests/testing/error_of.h"
#include "tests/testing/eventually.h"
#include "tests/testing/few_descriptors.h"

namespace cohort::launcher {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A rendezvous that says what it likes, and one node.
class AgentTest : public ::testing::Test {
 protected:
  // What the agent makes of these messages.
  std::vector<Message> orders_after(const std::vector<Message>& messages, size_t count) {
    Agent agent(options_, [this](const std::string& line) { lines_.push_back(line); });
    std::optional<Channel> rendezvous;
    std::vector<Message> orders;
    const auto step = [&] {
      agent.step();
      if (rendezvous) {
        rendezvous->move();
      } else if (net::Descriptor socket = accept_one()) {
        rendezvous.emplace(net::Stream(std::move(socket)), std::chrono::seconds(10));
        for (const Message& message : messages) rendezvous->send(message);
      }
      while (auto order = agent.next_order()) orders.push_back(std::move(*order));
      return orders.size() == count;
    };
    EXPECT_TRUE(cohort::testing::eventually(step));
    return orders;
  }

  net::Descriptor accept_one() const {
    return net::Descriptor(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
  }

  std::vector<std::string> lines_;

 private:
  const net::Descriptor listener_ = net::listen_on({});

 protected:
  const Options options_{
      .nodes =
          NodeOptions{.max_nodes = 2,
                      .rank = 1,
                      .rendezvous = Address::parse(net::InternetAddress::of(listener_).text())},
      .command = {"program"}};
};

TEST_F(AgentTest, MakesWhatOtherNodesSayFitForATerminal) {
  const auto orders = orders_after(
      {Notice{{"\x1b[2Jnode 0 (h\xc3\xb6st) is here"}}, Settle{"worker:1 exited on \x1b[31mhost"},
       End{"lost node 2 (\x1b]0;title\x07)"}, Signal{SIGTERM, false, "node 3 (\r\x7f)"}},
      3);
  EXPECT_THAT(lines_, ElementsAre("?[2Jnode 0 (h\xc3\xb6st) is here"));
  ASSERT_EQ(orders.size(), 3u);
  EXPECT_EQ(std::get<Settle>(orders[0]).reason, "worker:1 exited on ?[31mhost");
  EXPECT_EQ(std::get<End>(orders[1]).reason, "lost node 2 (?]0;title?)");
  // Two question marks and a bracket would be a trigraph.
  EXPECT_EQ(std::get<Signal>(orders[2]).origin,
            "node 3 (?"
            "?)");
}

// It would be given up only after `node_timeout` where it had spoken before.
TEST_F(AgentTest, GivesUpInTimeWhereTheRendezvousTakesTheConnectionAndSaysNothing) {
  Options options = options_;
  options.nodes->join_timeout = std::chrono::duration<double>(0.5);
  const auto begin = std::chrono::steady_clock::now();
  Agent agent(options, [](const std::string&) {});
  std::vector<net::Descriptor> taken;
  const Error error = cohort::testing::error_of([&] {
    cohort::testing::eventually([&] {
      agent.step();
      if (net::Descriptor socket = accept_one()) taken.push_back(std::move(socket));
      return false;
    });
  });
  EXPECT_LT(std::chrono::steady_clock::now() - begin, options.nodes->node_timeout / 2);
  EXPECT_EQ(error.code(), Code::kDeadlineExceeded) << error.message();
  EXPECT_THAT(error.message(), HasSubstr("after 0.5 s: it takes the connection and says nothing"));
  EXPECT_EQ(taken.size(), 1u);
}

// As one of an address that the system cannot have, when the next one will do.
TEST_F(AgentTest, ASocketThatCannotBeMadeIsNotTheEnd) {
  Agent agent(options_, [](const std::string&) {});
  {
    const cohort::testing::FewDescriptors none(0);
    agent.step();
  }
  EXPECT_TRUE(cohort::testing::eventually([&] {
    agent.step();
    return static_cast<bool>(accept_one());
  }));
}

}  // namespace
}  // namespace cohort::launcher
