#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "strategies/cluster/launcher/job_state.h"

namespace cohort::launcher {

// A rendezvous whose nodes the test plays: what it sends them is kept, by the numbers of their
// connections.
class JobStateTest : public ::testing::Test {
 protected:
  void begin(size_t min_nodes, size_t max_nodes, int restarts = 0) {
    state_.emplace(JobRules{.min_nodes = min_nodes,
                            .max_nodes = max_nodes,
                            .restarts = restarts,
                            .node_failures = node_failures_,
                            .join_timeout = std::chrono::seconds(60),
                            .last_call = std::chrono::seconds(30),
                            .timeout = timeout_,
                            .job_id = "secret",
                            .run_id = run_id_,
                            .terms = {{"--chief=", "false"}},
                            .place = "here"},
                   now_);
  }
  static Join greeting(const std::string& name, int rank = -1) {
    return {kProtocol,
            "secret",
            {{"--chief=", "false"}},
            {.name = name, .host = name, .rank = rank, .workers = {1, 2}}};
  }
  void join(int node, int rank = -1) {
    state_->join(node, greeting("host" + std::to_string(node), rank), now_);
    collect();
  }
  // A node without workers.
  void join_with_servers(int node, size_t servers) {
    Join join = greeting("host" + std::to_string(node));
    join.node.workers.clear();
    join.node.ps.assign(servers, 1);
    state_->join(node, join, now_);
    collect();
  }
  void tell(int node, const Message& message) {
    state_->receive(node, message, now_);
    collect();
  }
  void lose(int node) {
    state_->lose(node, "closed", 24, now_);
    collect();
  }
  void pass(std::chrono::seconds time) {
    for (; time.count() > 0; --time) {
      now_ += std::chrono::seconds(1);
      state_->tick(now_);
    }
    collect();
  }
  void fail_on(int node, int code, int weight = kWeightOfCause) {
    if (weight < kWeightOfCause) tell(node, Settle{"trouble"});
    if (weight == kWeightOfCause) tell(node, End{"trouble"});
    tell(node, Ended{.failures = {{"a task", code, weight, {"oh"}}}});
  }
  void collect() {
    for (auto& send : state_->take_sends()) {
      if (const auto* notice = std::get_if<Notice>(&send.message)) {
        for (const auto& line : notice->lines) said_[send.node] += line + "\n";
      } else {
        sent_[send.node].push_back(std::move(send.message));
      }
    }
  }
  // The messages of one type that a node has got since the last call.
  template <typename T>
  std::vector<T> got(int node) {
    std::vector<T> out;
    for (const Message& message : std::exchange(sent_[node], {})) {
      if (const auto* body = std::get_if<T>(&message)) out.push_back(*body);
    }
    return out;
  }
  // The exit code that a node was told; -1 without one.
  int code(int node) {
    const auto finish = got<Finish>(node);
    return finish.size() == 1 ? finish[0].code : -1;
  }

  JobState::Time now_{};
  std::chrono::seconds timeout_{0};
  int node_failures_ = 0;
  std::string run_id_;
  std::optional<JobState> state_;
  std::map<int, std::vector<Message>> sent_;
  std::map<int, std::string> said_;
};

}  // namespace cohort::launcher
