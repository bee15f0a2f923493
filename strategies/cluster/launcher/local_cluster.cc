#include "strategies/cluster/launcher/local_cluster.h"

#include <array>
#include <cstdio>
#include <sys/random.h>

#include <nlohmann/json.hpp>

namespace cohort::launcher {
namespace {

// 128 random bits in hexadecimal.
std::string random_id() {
  std::array<unsigned char, 16> bytes{};
  if (getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) {
    fail_system("cannot read random bytes");
  }
  std::string id;
  for (const unsigned char byte : bytes) {
    char digits[3];
    std::snprintf(digits, sizeof(digits), "%02x", byte);
    id += digits;
  }
  return id;
}

}  // namespace

LocalCluster::LocalCluster(const Options& options)
    : max_restarts_(options.restarts), job_id_(random_id()) {
  add("chief", options.chief ? 1 : 0);
  add("worker", options.workers);
  add("ps", options.ps);
  add("evaluator", options.evaluator ? 1 : 0);
}

void LocalCluster::add(const std::string& job, int count) {
  for (int index = 0; index < count; ++index) {
    const Task task{job, index};
    ports_.emplace_back();
    if (task.listens()) ports_.back().emplace();
    if (task.is_trainer()) ++num_trainers_;
    tasks_.push_back(task);
  }
}

Descriptor LocalCluster::socket(size_t task) const {
  return ports_[task] ? ports_[task]->socket() : Descriptor();
}

std::string LocalCluster::tf_config(const Task& task) const {
  nlohmann::ordered_json config;
  for (size_t i = 0; i < tasks_.size(); ++i) {
    if (ports_[i]) config["cluster"][tasks_[i].job].push_back(ports_[i]->address());
  }
  config["task"]["type"] = task.job;
  config["task"]["index"] = task.index;
  return config.dump();
}

Environment LocalCluster::environment(size_t task, Environment base, int restart,
                                      int socket) const {
  const auto set = [&](const std::string& name, const auto& value) { base.set(name, str(value)); };
  // Trainers come first, so that their positions are their ranks; others have none.
  const auto set_for_trainers = [&](const std::string& name, const auto& value) {
    base.unset(name);
    if (tasks_[task].is_trainer()) set(name, value);
  };
  set("TF_CONFIG", tf_config(tasks_[task]));
  set("COHORT_JOB_ID", job_id_);
  set("COHORT_RESTART_COUNT", restart);
  set("COHORT_MAX_RESTARTS", max_restarts_);
  base.unset("COHORT_LISTEN_FD");
  if (socket >= 0) set("COHORT_LISTEN_FD", socket);

  set_for_trainers("MASTER_ADDR", "127.0.0.1");
  set_for_trainers("MASTER_PORT", ports_[0]->port());
  for (const char* rank : {"RANK", "LOCAL_RANK", "ROLE_RANK"}) set_for_trainers(rank, task);
  for (const char* size : {"WORLD_SIZE", "LOCAL_WORLD_SIZE", "ROLE_WORLD_SIZE"}) {
    set_for_trainers(size, num_trainers_);
  }
  set_for_trainers("GROUP_RANK", 0);
  set_for_trainers("TORCHELASTIC_RUN_ID", job_id_);
  set_for_trainers("TORCHELASTIC_RESTART_COUNT", restart);
  set_for_trainers("TORCHELASTIC_MAX_RESTARTS", max_restarts_);
  base.unset("TORCHELASTIC_USE_AGENT_STORE");  // nobody else serves PyTorch's store: rank 0 does
  return base;
}

}  // namespace cohort::launcher
