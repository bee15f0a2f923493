#pragma once

#include <optional>
#include <string>

#include "strategies/cluster/cluster_resolver.h"
#include "strategies/cluster/environment.h"
#include "strategies/cluster/task_placement.h"

namespace cohort {

struct SlurmResolverOptions {
  // Tasks of each job; ranks go to jobs in alphabetical order. Default: all are workers.
  JobSizes jobs = {};
  // The port of the first task of a host; the next ones have the ports after it. Default:
  // MASTER_PORT, or where that is not set one that follows from the ids of job and step, so that
  // steps that share a host rarely meet; 8888 where these ids are not set either.
  std::optional<int> port_base = {};
  // Default: the number of GPUs in CUDA_VISIBLE_DEVICES, else SLURM_GPUS_ON_NODE, else of the host.
  std::optional<int> gpus_per_node = {};
  // Default: an equal share of them for each task of the fullest host; where that has more tasks
  // than GPUs, one for each task, which it shares with others. 0: none.
  std::optional<int> gpus_per_task = {};
  std::string rpc_layer = "grpc";
};

// A step of a Slurm job: each process that srun starts is a task. Reads
//
//   SLURM_PROCID, SLURM_STEP_NUM_TASKS         the rank of this process, and how many there are
//   SLURM_STEP_NODELIST                        the hosts, in the order in which they get ranks
//   SLURM_STEP_TASKS_PER_NODE                  how many ranks each gets
//   SLURM_DISTRIBUTION, SLURM_DIST_PLANESIZE   whether in blocks (the default), cyclic or in planes
//   SLURM_HET_SIZE                             if set, in blocks whatever that says
//   SLURM_NODEID, SLURM_LOCALID                if set, compared with the place worked out
//   MASTER_PORT                                the ports
//   SLURM_JOB_ID, SLURM_STEP_ID                the ports, where that is not set
//   CUDA_VISIBLE_DEVICES, SLURM_GPUS_ON_NODE   the GPUs of the host
//   SLURM_GPUS_PER_TASK, SLURM_GPU_BIND        whether Slurm has divided them already
//
// A host that the list names twice is one host with the tasks of both. Slurm has divided the GPUs
// where SLURM_GPUS_PER_TASK is set, or SLURM_GPU_BIND to single, per_task, map_gpu or mask_gpu: all
// visible ones are then this task's. Of a MASTER_ADDR that is not the host of rank 0 this rank
// warns, once in its process: the hosts are those of Slurm.
class SlurmResolver : public ClusterResolver {
 public:
  explicit SlurmResolver(const SlurmResolverOptions& options = {},
                         const Environment& environment = process_environment);
};

}  // namespace cohort
