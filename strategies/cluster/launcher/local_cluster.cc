#include "strategies/cluster/launcher/local_cluster.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "strategies/cluster/address.h"

namespace cohort::launcher {
namespace {

int size_of(const std::vector<int>& ports) { return static_cast<int>(ports.size()); }

}  // namespace

LocalCluster::LocalCluster(const Options& options, const NodePorts& ports, Round round)
    : max_restarts_{options.restarts, options.task_restarts},
      ports_(ports),
      round_(std::move(round)) {
  int first_worker = 0, first_ps = 0;
  for (int i = 0; i < static_cast<int>(round_.nodes.size()); ++i) {
    const Node& node = round_.nodes[static_cast<size_t>(i)];
    if (i < round_.index) {
      first_worker += size_of(node.workers);
      first_ps += size_of(node.ps);
    }
    world_size_ += size_of(node.workers);
    if (leader_port_ == 0 && (options.chief || !node.workers.empty())) {
      leader_host_ = node.host;
      leader_port_ = options.chief ? node.chief : node.workers[0];
    }
  }
  const bool has_ps =
      std::ranges::any_of(round_.nodes, [](const Node& n) { return !n.ps.empty(); });
  if (options.task_restarts > 0 && !has_ps) {
    invalid("--task_restarts=", options.task_restarts,
            " is for jobs with --ps: without parameter servers workers train together, and none of "
            "them can go on when one dies (--restarts starts all of them again)");
  }
  const bool is_first = round_.index == 0;
  first_rank_ = first_worker + (options.chief && !is_first ? 1 : 0);
  world_size_ += options.chief ? 1 : 0;
  add("chief", 0, options.chief && is_first ? 1 : 0);
  add("worker", first_worker, options.workers);
  add("ps", first_ps, options.ps);
  add("evaluator", 0, options.evaluator && is_first ? 1 : 0);
}

void LocalCluster::add(const std::string& job, int first, int count) {
  for (int place = 0; place < count; ++place) {
    const Task task{job, first + place};
    if (task.is_trainer()) ++num_trainers_;
    tasks_.push_back(task);
    places_.push_back(place);
  }
}

net::Descriptor LocalCluster::socket(size_t task) const {
  if (!tasks_[task].listens()) return net::Descriptor();
  return ports_.of(tasks_[task].job, places_[task]).socket();
}

std::string LocalCluster::tf_config(const Task& task) const {
  nlohmann::ordered_json config;
  const auto add = [&](const char* job, const Node& node, int port) {
    config["cluster"][job].push_back(Address::of(node.host, port).text());
  };
  const Node& first = round_.nodes[0];
  if (first.chief) add("chief", first, first.chief);
  for (const Node& node : round_.nodes) {
    for (const int port : node.workers) add("worker", node, port);
  }
  for (const Node& node : round_.nodes) {
    for (const int port : node.ps) add("ps", node, port);
  }
  config["task"]["type"] = task.job;
  config["task"]["index"] = task.index;
  return config.dump();
}

Environment LocalCluster::environment(size_t task, Environment base, Restarts restarts,
                                      int socket) const {
  const auto set = [&](const std::string& name, const auto& value) { base.set(name, str(value)); };
  // Trainers come first, so that their positions are their ranks on this host; others have none.
  const auto set_for_trainers = [&](const std::string& name, const auto& value) {
    base.unset(name);
    if (tasks_[task].is_trainer()) set(name, value);
  };
  set("TF_CONFIG", tf_config(tasks_[task]));
  set("COHORT_JOB_ID", round_.job_id);
  set("COHORT_RESTART_COUNT", restarts.of_all);
  set("COHORT_MAX_RESTARTS", max_restarts_.of_all);
  set("COHORT_TASK_RESTART_COUNT", restarts.of_task);
  set("COHORT_MAX_TASK_RESTARTS", tasks_[task].may_come_back() ? max_restarts_.of_task : 0);
  base.unset("COHORT_LISTEN_FD");
  if (socket >= 0) set("COHORT_LISTEN_FD", socket);

  set_for_trainers("MASTER_ADDR", leader_host_);
  set_for_trainers("MASTER_PORT", leader_port_);
  set_for_trainers("LOCAL_RANK", task);
  set_for_trainers("LOCAL_WORLD_SIZE", num_trainers_);
  for (const char* rank : {"RANK", "ROLE_RANK"}) {
    set_for_trainers(rank, static_cast<size_t>(first_rank_) + task);
  }
  for (const char* size : {"WORLD_SIZE", "ROLE_WORLD_SIZE"}) set_for_trainers(size, world_size_);
  set_for_trainers("GROUP_RANK", round_.index);
  set_for_trainers("TORCHELASTIC_RUN_ID", round_.job_id);
  set_for_trainers("TORCHELASTIC_RESTART_COUNT", restarts.of_all);
  set_for_trainers("TORCHELASTIC_MAX_RESTARTS", max_restarts_.of_all);
  base.unset("TORCHELASTIC_USE_AGENT_STORE");  // nobody else serves PyTorch's store: rank 0 does
  return base;
}

}  // namespace cohort::launcher
