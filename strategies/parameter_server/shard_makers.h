#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "core/tensor/tensor.h"
#include "strategies/parameter_server/memory_budget.h"

namespace cohort::parameter_server {

// Which task is making which shard of a server: one at a time makes each, so that a single value is
// held of a shard that all of them bring. Thread-safe.
class ShardMakers {
 public:
  // The values that arrive are taken of `budget`. `changed` is called, on any thread, when somebody
  // makes a shard no longer.
  ShardMakers(MemoryBudget& budget, std::function<void()> changed)
      : budget_(budget), changed_(std::move(changed)) {}

  // A shard that a task is making, until this goes; its makers must outlive it.
  class Making {
   public:
    Making(ShardMakers& makers, std::string shard) : makers_(makers), shard_(std::move(shard)) {}
    ~Making();
    Making(const Making&) = delete;
    Making& operator=(const Making&) = delete;

    // Memory for the shard's value, which counts as taken. Once. kResourceExhausted where there is
    // not so much left.
    std::shared_ptr<Buffer> memory(size_t bytes);
    // The memory counts no longer: the shard takes its own from here on.
    void hand_over() { share_.reset(); }

   private:
    friend class ShardMakers;
    ShardMakers& makers_;
    const std::string shard_;
    bool has_begun_ = false;
    std::optional<BudgetShare> share_;
  };

  // Null where somebody is making it.
  std::shared_ptr<Making> begin(const std::string& shard, const std::string& task);
  // Who is making it; empty: nobody.
  std::string maker(const std::string& shard) const;
  // What is left of the budget; `all` where somebody is making it, and may have taken that already.
  size_t memory_left(const std::string& shard, size_t all) const;

 private:
  MemoryBudget& budget_;
  const std::function<void()> changed_;
  mutable std::mutex mutex_;
  std::map<std::string, std::string> tasks_;  // by shard
};

}  // namespace cohort::parameter_server
