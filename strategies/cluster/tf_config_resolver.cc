#include "strategies/cluster/tf_config_resolver.h"

#include <algorithm>
#include <array>
#include <cstdint>

#include "core/base/error.h"
#include "strategies/cluster/cluster_roles.h"
#include "strategies/cluster/json_document.h"
#include "strategies/cluster/parsing.h"

namespace cohort {
namespace {

using config::Json;
using config::kMaxTasks;
using config::refuse;

constexpr const char* kName = "TF_CONFIG";
constexpr const char* kCluster = "cluster";
constexpr const char* kSparseCluster = "sparseCluster";
constexpr std::string_view kClusterExample = R"("cluster": {"worker": ["host:2222"]})";
constexpr std::string_view kTaskExample = R"("task": {"type": "worker", "index": 0})";
constexpr std::array<std::string_view, 5> kKeys = {"cluster", "task", "rpc_layer", "session_master",
                                                   "environment"};

std::optional<std::string> optional_text(const Json& config, const char* key) {
  const auto element = config.find(key);
  if (element == config.end()) return {};
  if (!element->is_string()) {
    refuse(str(kName, ".", key), config::found(*element), "a text",
           str('"', key, R"(": ")", std::string_view(key) == "rpc_layer" ? "grpc" : "...", '"'));
  }
  return element->get<std::string>();
}

std::string task_type(const Json& type) {
  if (type.is_string()) return type.get<std::string>();
  if (!type.is_number_integer()) {
    refuse("TF_CONFIG.task.type", config::found(type), "chief, worker, ps or evaluator",
           kTaskExample);
  }
  return type.dump();
}

int task_index(const Json& index) {
  constexpr const char* kPlace = "TF_CONFIG.task.index";
  if (index.is_string()) {
    return static_cast<int>(config::parse_integer(index.get_ref<const std::string&>(), kPlace,
                                                  {.min = 0, .max = kMaxTasks - 1}, kTaskExample));
  }
  // Of what an int64_t cannot hold, this is negative.
  const int64_t number = index.is_number_integer() ? index.get<int64_t>() : -1;
  if (number < 0 || number >= kMaxTasks) {
    refuse(kPlace, config::found(index), str("an integer from 0 to ", kMaxTasks - 1), kTaskExample);
  }
  return static_cast<int>(number);
}

void check_keys(const Json& config) {
  for (const auto& [key, value] : config.items()) {
    if (std::find(kKeys.begin(), kKeys.end(), key) == kKeys.end()) {
      refuse(config::path_of(kName, key), "an unknown key and no \"cluster\"",
             "cluster, task, rpc_layer, session_master or environment",
             R"({"cluster": {"worker": ["host0:2222"]}})");
    }
  }
}

class Reader {
 public:
  Reader(const TFConfigResolverOptions& options, Json config)
      : options_(options), config_(std::move(config)) {}

  ClusterFacts read() && {
    facts_.launcher = kName;
    read_cluster();
    read_task();
    facts_.session_master = optional_text(config_, "session_master");
    if (facts_.session_master) note("session master", *facts_.session_master, "session_master");
    read_text("rpc_layer", options_.rpc_layer, facts_.rpc_layer);
    read_text("environment", options_.environment, facts_.environment);
    return std::move(facts_);
  }

 private:
  void note(const std::string& name, const std::string& value, const std::string& key) {
    facts_.facts.push_back({name, value, str(kName, ".", key)});
  }

  void note_override(const std::string& name, const std::string& value) {
    facts_.facts.push_back({name, value, "the program"});
  }

  void read_cluster() {
    const bool is_whole = config_.contains(kCluster), is_sparse = config_.contains(kSparseCluster);
    if (!is_whole && !is_sparse) return check_keys(config_);
    const char* key = is_sparse ? kSparseCluster : kCluster;
    const std::string place = str(kName, ".", key);
    if (is_whole && is_sparse)
      refuse(place, "a \"cluster\" as well", "one of them", kClusterExample);
    const Json& cluster = config_[key];
    const auto tasks = config::parse_tasks(cluster, place);
    // A process without a cluster is on its own; a list that somebody forgot to fill says nothing.
    if (tasks.empty() && !cluster.empty())
      refuse(place, "jobs without a task", "the addresses of tasks, or no cluster",
             kClusterExample);
    facts_.spec = ClusterSpec::from_tasks(tasks);
    facts_.is_partial = is_sparse;
    for (const ClusterSpec::Task& task : tasks) {
      facts_.facts.push_back({str(task.job, ":", task.index), task.address.text(), task.place});
    }
  }

  void read_task() {
    const Json task = config_.value("task", Json::object());
    if (!task.is_object()) refuse("TF_CONFIG.task", config::found(task), "an object", kTaskExample);
    if (options_.task_type) {
      facts_.task_type = *options_.task_type;
      note_override("task type", facts_.task_type);
    } else if (task.contains("type")) {
      facts_.task_type = task_type(task["type"]);
      note("task type", facts_.task_type, "task.type");
    }
    if (options_.task_id) {
      facts_.task_id = options_.task_id;
      note_override("task index", str(*facts_.task_id));
    } else if (task.contains("index")) {
      facts_.task_id = task_index(task["index"]);
      note("task index", str(*facts_.task_id), "task.index");
    }
    check_task();
  }

  void check_task() const {
    if (facts_.spec.empty()) return;
    if (facts_.task_type.empty() != !facts_.task_id) {
      refuse("TF_CONFIG.task", facts_.task_type.empty() ? "no \"type\"" : "no \"index\"",
             "both or neither", kTaskExample);
    }
    if (facts_.task_id) {
      validate_task(facts_.spec, facts_.task_type, *facts_.task_id, "TF_CONFIG.task");
    }
  }

  void read_text(const char* key, const std::optional<std::string>& given, std::string& to) {
    if (given) {
      to = *given;
      note_override(key, to);
    } else if (const auto text = optional_text(config_, key)) {
      to = *text;
      note(key, to, key);
    }
  }

  const TFConfigResolverOptions& options_;
  Json config_;
  ClusterFacts facts_;
};

ClusterFacts read(const TFConfigResolverOptions& options, const Environment& environment) {
  const auto text = environment(kName);
  return Reader(options, text ? config::parse_object(*text, kName) : Json::object()).read();
}

}  // namespace

TFConfigResolver::TFConfigResolver(const TFConfigResolverOptions& options,
                                   const Environment& environment)
    : ClusterResolver(read(options, environment)) {}

}  // namespace cohort
