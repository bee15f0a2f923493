#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "strategies/cluster/net/internet_address.h"
#include "strategies/cluster/net/socket.h"
#include "tests/strategies/cluster/launcher/launched.h"
#include "tests/testing/certificates.h"

namespace cohort::testing {

// A port at which nobody listens now.
inline int free_port() { return net::InternetAddress::of(net::listen_on({})).port(); }

// Nodes of one job.
class Nodes {
 public:
  // `flags` and `actions` are those of all.
  explicit Nodes(std::vector<std::string> flags, std::vector<std::string> actions = {})
      : port_(free_port()), flags_(std::move(flags)), actions_(std::move(actions)) {
    flags_.push_back("--rendezvous=127.0.0.1:" + std::to_string(port_));
  }

  int port() const { return port_; }
  // Of those that are started from now on.
  void use(const TlsFiles& files) {
    environment_ = {{"COHORT_TLS_CERT", files.certificate},
                    {"COHORT_TLS_KEY", files.key},
                    {"COHORT_TLS_CA", files.authority}};
  }
  std::map<std::string, std::string>& environment() { return environment_; }
  Launched& start(const std::vector<std::string>& own_flags = {},
                  const std::vector<std::string>& own_actions = {}) {
    Launch launch = {.flags = flags_, .actions = own_actions, .environment = environment_};
    launch.flags.insert(launch.flags.end(), own_flags.begin(), own_flags.end());
    launch.actions.insert(launch.actions.end(), actions_.begin(), actions_.end());
    launch.environment["OMP_NUM_THREADS"] = "1";
    nodes_.push_back(std::make_unique<Launched>(launch));
    return *nodes_.back();
  }
  Launched& start_rank(int rank) { return start({"--node_rank=" + std::to_string(rank)}); }
  // Starts ranks 0 and 1, and returns when each of them has printed `text`.
  void start_two(const std::string& text) {
    Launched& first = start_rank(0);
    start_rank(1).wait_for_output(text);
    first.wait_for_output(text);
  }
  // Waits for all; their exit codes.
  std::vector<int> wait() {
    std::vector<int> codes;
    for (auto& node : nodes_) codes.push_back(node->wait());
    return codes;
  }
  // The last one has been waited for.
  void forget_last() { nodes_.pop_back(); }
  Launched& operator[](size_t i) { return *nodes_[i]; }
  std::string all_errors() const {
    std::string out;
    for (const auto& node : nodes_) out += "--- a node:\n" + node->errors();
    return out;
  }

 private:
  int port_;
  std::vector<std::string> flags_, actions_;
  std::map<std::string, std::string> environment_;
  std::vector<std::unique_ptr<Launched>> nodes_;
};

}  // namespace cohort::testing
