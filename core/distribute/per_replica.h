#pragma once

#include <initializer_list>
#include <utility>
#include <vector>

namespace cohort {

// One value for each local replica, in replica order (tf.distribute's PerReplica). What `run` takes
// and returns; `Strategy::reduce` and `gather` make one value of it.
template <typename T>
class PerReplica {
 public:
  PerReplica() = default;
  explicit PerReplica(size_t replicas) : values_(replicas) {}
  // A list of values is one. NOLINTNEXTLINE(google-explicit-constructor)
  PerReplica(std::vector<T> values) : values_(std::move(values)) {}
  PerReplica(std::initializer_list<T> values) : values_(values) {}

  size_t size() const { return values_.size(); }
  T& operator[](size_t replica) { return values_.at(replica); }
  const T& operator[](size_t replica) const { return values_.at(replica); }
  auto begin() { return values_.begin(); }
  auto end() { return values_.end(); }
  auto begin() const { return values_.begin(); }
  auto end() const { return values_.end(); }
  const std::vector<T>& values() const { return values_; }

 private:
  std::vector<T> values_;
};

}  // namespace cohort
