#include "strategies/coordinator/replica_inputs.h"

#include <algorithm>
#include <span>

#include "core/base/error.h"
#include "core/distribute/strategy.h"
#include "core/tensor/specs_of.h"

namespace cohort::coordinator {
namespace {

// How many rows of a batch each replica gets.
std::vector<int64_t> shares_of(std::span<const TensorSpec> batch, int replicas) {
  const auto rows_of = [](const TensorSpec& spec) {
    return spec.shape.rank() > 0 ? spec.shape[0] : -1;
  };
  for (const TensorSpec& spec : batch)
    if (rows_of(spec) < 0 || rows_of(spec) != rows_of(batch[0]))
      invalid("the rows of a batch are divided over ", replicas,
              " replicas, and its tensors need equally many, got ", batch[0], " and ", spec);
  return split_rows(batch.empty() ? 0 : rows_of(batch[0]), replicas);
}

// How many tensors a parameter is given.
size_t num_tensors(const Parameter& parameter) {
  return parameter.is_batch ? parameter.names.size() : 1;
}

}  // namespace

std::vector<Signature> signatures_on_replicas(const CallSignature& call, int replicas) {
  std::vector<Signature> signatures(static_cast<size_t>(replicas), call.tensors);
  size_t begin = 0;
  for (const Parameter& parameter : call.parameters) {
    const size_t count = num_tensors(parameter);
    if (count > call.tensors.size() - begin)
      invalid("a function has ", call.tensors.size(), " inputs, too few for its parameters");
    if (parameter.is_batch && parameter.per_replica) {
      const auto shares = shares_of(std::span(call.tensors).subspan(begin, count), replicas);
      for (size_t r = 0; r < signatures.size(); ++r)
        for (size_t i = begin; i < begin + count; ++i)
          signatures[r][i].shape = signatures[r][i].shape.with_dim(0, shares[r]);
    }
    begin += count;
  }
  return signatures;
}

PerReplica<std::vector<Tensor>> rows_on_replicas(const std::vector<Tensor>& batch, int replicas) {
  const std::vector<int64_t> shares = shares_of(specs_of(batch), replicas);
  PerReplica<std::vector<Tensor>> parts(shares.size());
  for (const Tensor& tensor : batch) {
    int64_t begin = 0;
    for (size_t r = 0; r < shares.size(); begin += shares[r++])
      parts[r].push_back(tensor.slice_rows(begin, begin + shares[r]));
  }
  return parts;
}

ReplicaGroup group_of(const CallSignature& call, int replicas, const std::string& strategy) {
  if (replicas == 1) return {};
  ReplicaGroup group{.num_replicas = replicas,
                     .signatures = signatures_on_replicas(call, replicas),
                     .same_input = {},
                     .strategy_name = strategy};
  for (const Parameter& parameter : call.parameters)
    group.same_input.insert(group.same_input.end(), num_tensors(parameter), !parameter.per_replica);
  // What makes no difference makes no other trace either.
  const auto equals_first = [&](const Signature& s) { return s == group.signatures[0]; };
  if (std::ranges::all_of(group.signatures, equals_first)) group.signatures.clear();
  if (std::ranges::find(group.same_input, true) == group.same_input.end()) group.same_input.clear();
  return group;
}

}  // namespace cohort::coordinator
