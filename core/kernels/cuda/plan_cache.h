#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "core/device/device.h"

namespace cohort::cuda {

// What libraries planned, by device and problem: nodes that are alike share a plan, and who
// compiles a function again does not search again. Keeps the `capacity` plans that were asked for
// last; others live as long as their users. That there is no plan (null) is kept too. Thread-safe;
// a plan is made once, while others wait.
template <typename Problem, typename Plan>
class PlanCache {
 public:
  // More than the convolutions of a few large models, in each of three directions; other kinds of
  // problems are fewer.
  static constexpr size_t kCapacity = 1024;

  explicit PlanCache(size_t capacity = kCapacity) : capacity_(capacity) {}

  // The plan of `problem` on `device`, from make() where there is none yet. What make() throws is
  // passed on and forgotten.
  template <typename Make>
  std::shared_ptr<Plan> find_or_make(Device device, const Problem& problem, const Make& make) {
    const std::lock_guard lock(mutex_);
    const Key key(device, problem);
    auto it = entries_.find(key);
    if (it == entries_.end()) {
      std::shared_ptr<Plan> plan = make();
      if (entries_.size() >= capacity_) forget_oldest();
      it = entries_.emplace(key, Entry{std::move(plan)}).first;
    }
    it->second.used = ++uses_;
    return it->second.plan;
  }

  size_t size() const {
    const std::lock_guard lock(mutex_);
    return entries_.size();
  }

 private:
  using Key = std::pair<Device, Problem>;
  struct Entry {
    std::shared_ptr<Plan> plan;
    uint64_t used = 0;
  };

  // Among a thousand at most, once for each search by the library: a walk is quick enough.
  void forget_oldest() {
    auto oldest = entries_.begin();
    for (auto it = entries_.begin(); it != entries_.end(); ++it)
      if (it->second.used < oldest->second.used) oldest = it;
    if (oldest != entries_.end()) entries_.erase(oldest);
  }

  const size_t capacity_;
  mutable std::mutex mutex_;
  std::map<Key, Entry> entries_;
  uint64_t uses_ = 0;
};

}  // namespace cohort::cuda
