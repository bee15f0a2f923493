#include "strategies/cluster/slurm_resolver.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <mutex>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "core/base/error.h"
#include "core/base/notice.h"
#include "core/base/random.h"
#include "strategies/cluster/gpu_list.h"
#include "strategies/cluster/host_list.h"
#include "strategies/cluster/parsing.h"

namespace cohort {
namespace {

using config::host_gpus;
using config::kMaxTasks;
using config::listed_gpus;
using config::refuse;

constexpr const char* kNumTasks = "SLURM_STEP_NUM_TASKS";
constexpr const char* kNodeList = "SLURM_STEP_NODELIST";
constexpr const char* kTasksPerNode = "SLURM_STEP_TASKS_PER_NODE";

// The tasks of a step as Slurm laid them out. A node is an entry of the list, which may name a host
// several times.
struct Step {
  std::string node_list;  // as Slurm wrote it
  std::vector<ListedHost> nodes;
  std::vector<int> tasks_per_node;
  std::vector<int> tasks_before;  // of a node: those that its host has by earlier entries
  std::unordered_map<std::string, int> tasks_of_host;
  std::vector<int> node_of_rank, local_of_rank;

  const ListedHost& host(int rank) const {
    return nodes[static_cast<size_t>(node_of_rank[static_cast<size_t>(rank)])];
  }
  // Among all tasks of its host.
  int place_on_host(int rank) const {
    const auto node = static_cast<size_t>(node_of_rank[static_cast<size_t>(rank)]);
    return tasks_before[node] + local_of_rank[static_cast<size_t>(rank)];
  }
};

struct PortBase {
  int port;
  std::string source;
};

// How many neighbouring ranks a node gets at a time while ranks are dealt out, from
// SLURM_DISTRIBUTION: "block", "cyclic:block", "plane", "plane=4", ... Plane is the one whose size
// srun puts in a variable of its own. A step of several components has them one after the other,
// each dealt out by itself, and the variable tells of the last one only.
int plane_size(const Environment& environment) {
  constexpr int kBlock = std::numeric_limits<int>::max();
  if (environment("SLURM_HET_SIZE")) return kBlock;
  constexpr IntegerRange kSizes{.min = 1, .max = kMaxTasks};
  const std::string text = environment("SLURM_DISTRIBUTION").value_or("block");
  const std::string nodes = text.substr(0, text.find_first_of(":,"));
  if (nodes == "block" || nodes == "*" || nodes.empty()) return kBlock;
  if (nodes == "cyclic") return 1;
  if (nodes == "plane") {
    return config::required_integer(environment, "SLURM_DIST_PLANESIZE", kSizes, "4");
  }
  constexpr std::string_view kPlane = "plane=";
  if (nodes.starts_with(kPlane)) {
    return static_cast<int>(config::parse_integer(nodes.substr(kPlane.size()), "SLURM_DISTRIBUTION",
                                                  kSizes, "SLURM_DISTRIBUTION=plane=4"));
  }
  refuse("SLURM_DISTRIBUTION", quote(text), "block, cyclic or plane=SIZE",
         "srun --distribution=block");
}

void count_tasks_of_hosts(Step& step) {
  for (size_t node = 0; node < step.nodes.size(); ++node) {
    int& tasks = step.tasks_of_host[step.nodes[node].name];
    step.tasks_before.push_back(tasks);
    tasks += step.tasks_per_node[node];
  }
}

void deal_ranks(Step& step, int num_tasks, int plane) {
  std::vector<int> dealt(step.nodes.size());
  while (static_cast<int>(step.node_of_rank.size()) < num_tasks) {
    for (size_t node = 0; node < step.nodes.size(); ++node) {
      const int count = std::min(plane, step.tasks_per_node[node] - dealt[node]);
      for (int i = 0; i < count; ++i) {
        step.node_of_rank.push_back(static_cast<int>(node));
        step.local_of_rank.push_back(dealt[node]++);
      }
    }
  }
}

Step read_step(const Environment& environment, int num_tasks) {
  Step step;
  step.node_list = config::required_text(environment, kNodeList, "n[1-4]");
  const std::string counts = config::required_text(environment, kTasksPerNode, "2(x4)");
  // Every node has a task, which the counts have to say first, so that there cannot be more nodes
  // than tasks.
  step.tasks_per_node = expand_task_counts(counts, kTasksPerNode, num_tasks, kNumTasks);
  step.nodes = expand_host_list(step.node_list, kNodeList, num_tasks, kNumTasks);
  if (step.tasks_per_node.size() != step.nodes.size()) {
    refuse(str(kTasksPerNode, "=", quote(counts)), str(step.tasks_per_node.size(), " hosts"),
           str("the ", step.nodes.size(), " of ", kNodeList, "=", quote(step.node_list)),
           str(kTasksPerNode, "=1(x", step.nodes.size(), ")"));
  }
  int64_t sum = 0;
  for (const int count : step.tasks_per_node) sum += count;
  if (sum != num_tasks) {
    refuse(str(kTasksPerNode, "=", quote(counts)), str(sum, " tasks"),
           str("the ", num_tasks, " of ", kNumTasks), "2(x4) for 8 tasks");
  }
  count_tasks_of_hosts(step);
  deal_ranks(step, num_tasks, plane_size(environment));
  return step;
}

// That Slurm agrees on where this task is: a wrong address would be waited for in vain.
void check_place(const Environment& environment, const Step& step, int rank) {
  const auto check = [&](const char* name, int expected) {
    const auto told =
        config::optional_integer(environment, name, {.min = 0, .max = kMaxTasks}, "0");
    if (told && *told != expected) {
      refuse(name, str(*told), str(expected, " for rank ", rank, " of ", kNodeList),
             "srun --distribution=block");
    }
  };
  check("SLURM_NODEID", step.node_of_rank[static_cast<size_t>(rank)]);
  check("SLURM_LOCALID", step.local_of_rank[static_cast<size_t>(rank)]);
}

PortBase port_base(const SlurmResolverOptions& options, const Environment& environment) {
  if (options.port_base) return {*options.port_base, "the program's port"};
  if (const auto port =
          config::optional_integer(environment, "MASTER_PORT", {.min = 1, .max = 65535}, "29500"))
    return {*port, "MASTER_PORT"};
  // Slurm numbers the jobs of a federation, and a job's own script and the like, up to 32 bits.
  const auto id = [&](const char* name) -> std::optional<int64_t> {
    const auto text = environment(name);
    if (!text) return std::nullopt;
    return config::parse_integer(*text, name, {.min = 0, .max = UINT32_MAX}, str(name, "=1234"));
  };
  const auto job = id("SLURM_JOB_ID"), step = id("SLURM_STEP_ID");
  if (!job) return {8888, "port 8888"};
  // Blocks of 20 ports from 10000 to 29999, below those that systems hand out for outgoing ones.
  const uint64_t block =
      mix(0, static_cast<uint64_t>(*job), static_cast<uint64_t>(step.value_or(0))) % 1000;
  return {static_cast<int>(10000 + 20 * block),
          str("ports of job ", *job, step ? str(" step ", *step) : "")};
}

// A name may have a domain.
void warn_of_other_master(const Environment& environment, const Step& step) {
  const std::string master = environment("MASTER_ADDR").value_or("");
  const std::string& host = step.host(0).name;
  if (master.empty() || master == host || master.starts_with(host + ".")) return;
  static std::once_flag warned;
  std::call_once(warned, [&] {
    print_notice(str("warning: MASTER_ADDR=", master,
                     " has no effect in a Slurm step: rank 0 is at ", host, ", the first host of ",
                     kNodeList, "\n"));
  });
}

std::vector<RankedTask> place_ranks(const Step& step, const PortBase& base) {
  const int size = static_cast<int>(step.node_of_rank.size());
  std::vector<RankedTask> ranks;
  ranks.reserve(step.node_of_rank.size());
  const std::string list = str(kNodeList, "=", quote(step.node_list));
  for (int rank = 0; rank < size; ++rank) {
    const ListedHost& host = step.host(rank);
    const std::string at = str(" column ", host.column, ", ", base.source);
    ranks.push_back(
        {Address::of(host.name, base.port + step.place_on_host(rank), list + at), kNodeList + at});
  }
  return ranks;
}

std::vector<std::string> numbered_gpus(int count) {
  std::vector<std::string> gpus;
  for (int i = 0; i < count; ++i) gpus.push_back(std::to_string(i));
  return gpus;
}

struct Gpus {
  std::vector<std::string> ids;
  std::string source;
};

Gpus node_gpus(const SlurmResolverOptions& options, const Environment& environment) {
  const auto visible = environment("CUDA_VISIBLE_DEVICES");
  if (options.gpus_per_node) {
    auto gpus = numbered_gpus(*options.gpus_per_node);
    if (visible && listed_gpus(*visible).size() == gpus.size()) gpus = listed_gpus(*visible);
    return {gpus, "the program's GPUs per node"};
  }
  if (visible) return {listed_gpus(*visible), "CUDA_VISIBLE_DEVICES"};
  constexpr IntegerRange kCounts{.min = 0, .max = 4096};
  if (const auto count =
          config::optional_integer(environment, "SLURM_GPUS_ON_NODE", kCounts, "8")) {
    return {numbered_gpus(*count), "SLURM_GPUS_ON_NODE"};
  }
  return {numbered_gpus(host_gpus()), "the host's driver"};
}

// Whether Slurm has given each task GPUs of its own: what it shows a task is then that task's
// alone.
bool divided_by_slurm(const Environment& environment) {
  if (environment("SLURM_GPUS_PER_TASK")) return true;
  // "single:1", "verbose,map_gpu:0,1", ...
  const std::string binding = "," + environment("SLURM_GPU_BIND").value_or("");
  constexpr std::string_view kDividing[] = {",single:", ",per_task:", ",map_gpu:", ",mask_gpu:"};
  return std::ranges::any_of(
      kDividing, [&](std::string_view kind) { return binding.find(kind) != std::string::npos; });
}

// This task's share of the GPUs of its host.
Gpus task_gpus(const SlurmResolverOptions& options, const Environment& environment,
               const Step& step, int rank) {
  Gpus gpus = node_gpus(options, environment);
  if (!options.gpus_per_node && !options.gpus_per_task && divided_by_slurm(environment)) {
    return {gpus.ids, gpus.source + ", divided by Slurm"};
  }
  int fullest = 0;
  for (const auto& [host, tasks] : step.tasks_of_host) fullest = std::max(fullest, tasks);
  const int available = static_cast<int>(gpus.ids.size());
  const int share = options.gpus_per_task.value_or(available / fullest);
  if (static_cast<int64_t>(share) * fullest > available) {
    refuse("gpus_per_task", str(share, " for each of ", fullest, " tasks of a host"),
           str("at most the ", available, " of ", gpus.source, " in all"),
           str("gpus_per_task = ", available / fullest));
  }
  const int64_t place = step.place_on_host(rank);
  if (share == 0 && available > 0 && !options.gpus_per_task) {
    const int64_t shared = place * available / step.tasks_of_host.at(step.host(rank).name);
    return {{gpus.ids[static_cast<size_t>(shared)]}, gpus.source + ", shared by several tasks"};
  }
  const auto first = gpus.ids.begin() + place * share;
  return {{first, first + share}, gpus.source};
}

void check_options(const SlurmResolverOptions& options) {
  const auto check = [](const char* name, std::optional<int> value, int least, int most) {
    if (value && (*value < least || *value > most)) {
      refuse(name, str(*value), str("an integer from ", least, " to ", most),
             str(name, " = ", least));
    }
  };
  check("port_base", options.port_base, 1, 65535);
  check("gpus_per_node", options.gpus_per_node, 0, 4096);
  check("gpus_per_task", options.gpus_per_task, 0, 4096);
}

std::string join(const std::vector<std::string>& words) {
  std::string out;
  for (const std::string& word : words) out += (out.empty() ? "" : ",") + word;
  return out;
}

ClusterFacts read(const SlurmResolverOptions& options, const Environment& environment) {
  check_options(options);
  const int num_tasks =
      config::required_integer(environment, kNumTasks, {.min = 1, .max = kMaxTasks}, "8");
  const int rank =
      config::required_integer(environment, "SLURM_PROCID", {.min = 0, .max = num_tasks - 1}, "0");
  const Step step = read_step(environment, num_tasks);
  check_place(environment, step, rank);
  if (rank == 0) warn_of_other_master(environment, step);
  const auto tasks = assign_jobs(options.jobs, place_ranks(step, port_base(options, environment)));
  Gpus gpus = task_gpus(options, environment, step, rank);

  ClusterFacts facts{.launcher = "Slurm"};
  facts.spec = ClusterSpec::from_tasks(tasks);
  facts.task_type = tasks[static_cast<size_t>(rank)].job;
  facts.task_id = tasks[static_cast<size_t>(rank)].index;
  facts.tasks_on_host = step.tasks_of_host.at(step.host(rank).name);
  facts.rpc_layer = options.rpc_layer;
  for (const ClusterSpec::Task& task : tasks) {
    facts.facts.push_back({str(task.job, ":", task.index), task.address.text(), task.place});
  }
  facts.facts.push_back({"task", str(facts.task_type, ":", *facts.task_id), "SLURM_PROCID"});
  facts.facts.push_back({"GPUs", gpus.ids.empty() ? "none" : join(gpus.ids), gpus.source});
  facts.gpus = std::move(gpus.ids);
  return facts;
}

}  // namespace

SlurmResolver::SlurmResolver(const SlurmResolverOptions& options, const Environment& environment)
    : ClusterResolver(read(options, environment)) {}

}  // namespace cohort
