#pragma once

#include <initializer_list>
#include <utility>
#include <vector>

#include "core/base/error.h"

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
  // The value of a local replica; kInvalidArgument where there is no such replica.
  typename std::vector<T>::reference operator[](size_t replica) {
    return values_[checked(replica)];
  }
  typename std::vector<T>::const_reference operator[](size_t replica) const {
    return values_[checked(replica)];
  }
  auto begin() { return values_.begin(); }
  auto end() { return values_.end(); }
  auto begin() const { return values_.begin(); }
  auto end() const { return values_.end(); }
  const std::vector<T>& values() const { return values_; }

 private:
  size_t checked(size_t replica) const {
    if (replica >= size())
      invalid("there is no value of replica ", replica, ": there are ", size(), " values");
    return replica;
  }

  std::vector<T> values_;
};

}  // namespace cohort
