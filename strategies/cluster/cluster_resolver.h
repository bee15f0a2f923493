#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "strategies/cluster/address.h"
#include "strategies/cluster/cluster_spec.h"

namespace cohort {

// A task's place among those that train together.
struct World {
  int rank = 0;
  int size = 1;
  // Its place among the tasks of its host, where the launcher tells.
  std::optional<int> local_rank, local_size;
};

// Something that a resolver found out, and where: {"worker:1", "h1:2222",
// "TF_CONFIG.cluster.worker[1]"}.
struct Fact {
  std::string name, value, source;
};

// What a resolver knows; what it does not know keeps its default.
struct ClusterFacts {
  std::string launcher;  // who told: "TF_CONFIG", "Slurm", ...
  ClusterSpec spec;
  bool is_partial = false;  // `spec` has not all workers
  std::string task_type;
  std::optional<int> task_id;
  std::string rpc_layer, environment;
  std::optional<std::string> session_master;
  // For launchers that tell ranks and not addresses; derived from `spec` otherwise.
  std::optional<World> world;
  std::optional<Address> leader;
  bool several_hosts = false;  // said by the launcher, beside `world`
  // For launchers that tell addresses and how many tasks this one's host has.
  std::optional<int> tasks_on_host;
  // Ids of the GPUs that this task shall use: indices or UUIDs, as in CUDA_VISIBLE_DEVICES.
  std::optional<std::vector<std::string>> gpus;
  std::vector<Fact> facts;
};

// Who takes part in a cluster and which task of it this process is. Resolvers read the environment
// once, when they are made, and then never change. Errors are kInvalidArgument and name the
// variable, what was found there, what is allowed and an example.
//
// Some launchers (torchrun, MPI) give every process a rank and at best the address of rank 0: then
// cluster_spec() is empty, and world() and leader() tell what there is. With those two, any task
// can find all others, whoever launched it.
//
// Derive from it to read another source: fill in ClusterFacts.
class ClusterResolver {
 public:
  virtual ~ClusterResolver() = default;

  // "TF_CONFIG", "Slurm", "torchrun", "Open MPI", "PMI", "PMIx", "Kubernetes", "literal".
  const std::string& launcher() const { return facts_.launcher; }
  // Empty for a program on its own, and where addresses are not known.
  const ClusterSpec& cluster_spec() const { return facts_.spec; }
  // "worker", ...; "" when not known.
  const std::string& task_type() const { return facts_.task_type; }
  std::optional<int> task_id() const { return facts_.task_id; }
  // "grpc", ...; "" when not given.
  const std::string& rpc_layer() const { return facts_.rpc_layer; }
  // As TF_CONFIG gives it, such as "cloud"; "" otherwise.
  const std::string& environment() const { return facts_.environment; }

  // The address of a task, as "rpc_layer://host:port", or "host:port" without a layer. Arguments
  // that are left out are those of this task. "" where there is nothing to connect to: no cluster,
  // or a single task. A session master in TF_CONFIG takes the place of all of these.
  std::string master(const std::optional<std::string>& task_type = {},
                     std::optional<int> task_id = {},
                     const std::optional<std::string>& rpc_layer = {}) const;

  // This task's rank among chief and workers. An evaluator, like a program on its own, is a world
  // of one. An error for a parameter server, which has no rank, for a cluster of several tasks in
  // which this one's place is not given, and for workers that are not numbered without a gap.
  World world() const;
  // Where the task that leads the others listens: chief:0 or worker:0. Nothing for an evaluator,
  // for a program on its own, and where a launcher does not tell.
  std::optional<Address> leader() const;
  // Whether the launcher says that its ranks are on several hosts. False where it does not say, and
  // where it tells addresses instead.
  bool several_hosts() const { return facts_.several_hosts; }

  // How many tasks there are on this one's host, itself included, where the launcher says.
  std::optional<int> tasks_on_host() const {
    return facts_.world ? facts_.world->local_size : facts_.tasks_on_host;
  }

  // The GPUs that this task shall use and their number; nothing where that is not known, which
  // leaves it all GPUs of its host.
  const std::optional<std::vector<std::string>>& gpus() const { return facts_.gpus; }
  std::optional<int> num_accelerators() const;

  // Everything above that was read from somewhere.
  const std::vector<Fact>& facts() const { return facts_.facts; }

 protected:
  explicit ClusterResolver(ClusterFacts facts) : facts_(std::move(facts)) {}

 private:
  ClusterFacts facts_;
};

}  // namespace cohort
