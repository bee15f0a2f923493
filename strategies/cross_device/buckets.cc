#include "strategies/cross_device/buckets.h"

#include <algorithm>
#include <map>

#include "core/distribute/replica_context.h"
#include "core/ops/collective_ops.h"

namespace cohort {
namespace {

// A small first bucket starts the reduction early; larger ones then waste less on starting.
constexpr int64_t kFirstBucketBytes = int64_t{1} << 20;
constexpr int64_t kBucketBytes = int64_t{8} << 20;

// Gradient indices by when the backward pass completes them.
std::vector<size_t> ready_order(const std::vector<Gradient>& gradients) {
  std::vector<size_t> order;
  for (size_t i = 0; i < gradients.size(); ++i)
    if (gradients[i] && !gradients[i].sparse()) order.push_back(i);
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return gradients[a].values.node().id() < gradients[b].values.node().id();
  });
  return order;
}

struct Bucket {
  std::vector<size_t> gradients;  // their indices
  int64_t bytes = 0;
};

// Buckets of one dtype each, in the order in which they are complete.
std::vector<Bucket> make_buckets(const std::vector<Gradient>& gradients, int64_t bytes_per_pack) {
  const auto limit = [&](bool is_first) {
    if (bytes_per_pack > 0) return bytes_per_pack;
    return is_first ? kFirstBucketBytes : kBucketBytes;
  };
  std::vector<Bucket> buckets;
  std::map<DType, Bucket> open;
  for (const size_t i : ready_order(gradients)) {
    const TensorSpec& spec = gradients[i].values.spec();
    Bucket& bucket = open[spec.dtype];
    bucket.gradients.push_back(i);
    bucket.bytes += static_cast<int64_t>(spec.bytes());
    if (bucket.bytes < limit(buckets.empty())) continue;
    buckets.push_back(std::move(bucket));
    open.erase(spec.dtype);
  }
  const auto full = static_cast<std::ptrdiff_t>(buckets.size());
  for (auto& [dtype, bucket] : open) buckets.push_back(std::move(bucket));
  std::sort(buckets.begin() + full, buckets.end(), [&](const Bucket& a, const Bucket& b) {
    return gradients[a.gradients.back()].values.node().id() <
           gradients[b.gradients.back()].values.node().id();
  });
  return buckets;
}

}  // namespace

std::vector<Gradient> reduce_in_buckets(const std::vector<Gradient>& gradients,
                                        const CommunicationOptions& options, const Value& when) {
  std::vector<Gradient> reduced = gradients;
  // Slices are gathered whatever `when` says.
  for (Gradient& gradient : reduced)
    if (when.defined() && gradient.sparse()) gradient = {.values = gradient.dense()};
  for (const auto& [bucket, bytes] : make_buckets(reduced, options.bytes_per_pack)) {
    std::vector<Value> values;
    for (const size_t i : bucket) values.push_back(reduced[i].values);
    const auto sums = ops::all_reduce_async(values, ReduceOp::kSum, when);
    for (size_t k = 0; k < bucket.size(); ++k) reduced[bucket[k]].values = sums[k];
  }
  for (Gradient& gradient : reduced)
    if (gradient.sparse()) gradient = get_replica_context()->all_reduce(ReduceOp::kSum, gradient);
  return reduced;
}

}  // namespace cohort
