#include "core/distribute/input_options.h"

#include "core/base/error.h"

namespace cohort {

int64_t InputContext::get_per_replica_batch_size(int64_t global_batch_size) const {
  if (num_replicas_in_sync < 1)
    invalid("InputContext: num_replicas_in_sync is ", num_replicas_in_sync,
            "; it has to be 1 or more");
  if (global_batch_size < 1) invalid("the global batch size ", global_batch_size, " is below 1");
  if (global_batch_size % num_replicas_in_sync != 0)
    invalid("the global batch size ", global_batch_size, " is not divisible by the ",
            num_replicas_in_sync, " replicas in sync");
  return global_batch_size / num_replicas_in_sync;
}

std::vector<int64_t> rebatch_sizes(int64_t batch, int pipelines, int replicas, int pipeline) {
  if (batch < 0 || pipelines < 1 || replicas < 1 || pipeline < 0 || pipeline >= pipelines)
    invalid("rebatch_sizes(): a batch of ", batch, " rows, pipeline ", pipeline, " of ", pipelines,
            " with ", replicas, " replicas each");
  const int64_t parts = int64_t{pipelines} * replicas;
  const int64_t first = int64_t{pipeline} * replicas;
  std::vector<int64_t> sizes;
  for (int64_t i = 0; i < parts; ++i)
    sizes.push_back(batch / parts + ((first + i) % parts < batch % parts ? 1 : 0));
  return sizes;
}

}  // namespace cohort
