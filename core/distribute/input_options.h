#pragma once

#include <cstdint>
#include <vector>

namespace cohort {

// How a dataset is divided over the input pipelines of several workers
// (tf.data.experimental.AutoShardPolicy).
enum class AutoShardPolicy {
  kAuto,  // by file where the dataset reads a file for each pipeline at least, else by element; but
          // as kOff where a DistributedSampler has given each pipeline its rows
  kFile,  // pipeline i of n reads files i, i + n, ...; with fewer files the last ones read nothing,
          // and steps have the rows of the others alone; kNotFound for a dataset that reads none,
          // kInvalidArgument where such parts are not the whole (core/data/auto_shard.h)
  kData,  // pipeline i of n keeps elements i, i + n, ...
  kOff    // every pipeline reads everything, in an order of its own where a shuffle has no seed; of
          // programs' own shares, which have as many elements each where the number is known
};

// Options of Strategy::distribute_dataset.
struct InputOptions {
  AutoShardPolicy auto_shard = AutoShardPolicy::kAuto;
  // Instead: every pipeline reads everything and takes its rows of each batch, in replica order.
  // What replicas make of them can then be gathered in the order of the dataset.
  bool keep_order = false;
  // Batches made ready in the background for the replicas, in the memory of their devices; 0 turns
  // this off.
  int64_t prefetch = 1;
};

// For which pipeline a dataset function makes a dataset (tf.distribute.InputContext).
struct InputContext {
  int num_input_pipelines = 1;
  int input_pipeline_id = 0;
  int num_replicas_in_sync = 1;
  // Whether the worker of each pipeline steps on its own: a batch is then one of a worker, not of
  // all together, and what is not divided (AutoShardPolicy::kOff, InputOptions::keep_order) each
  // does whole.
  bool independent = false;

  // kInvalidArgument unless there are replicas, and they divide the global batch.
  int64_t get_per_replica_batch_size(int64_t global_batch_size) const;
};

// The sizes into which pipeline `pipeline` of `pipelines`, with `replicas` replicas each, cuts
// successive batches of `batch` rows: n = pipelines * replicas parts that differ by at most one
// row, the larger first, rotated by pipeline * replicas. So each list sums to `batch`, and so do,
// at each step, the parts of all pipelines (tf.data's rebatch rule; 10 over 2 x 2 is 3,3,2,2 and
// 2,2,3,3). Parts may be 0.
std::vector<int64_t> rebatch_sizes(int64_t batch, int pipelines, int replicas, int pipeline);

}  // namespace cohort
