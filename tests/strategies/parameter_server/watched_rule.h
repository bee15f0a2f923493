#pragma once

#include <functional>
#include <vector>

#include "core/optim/update_rule.h"

namespace cohort::testing {

// Gradient descent whose updates call the UpdateWatch that there is.
class WatchedRule final : public optim::UpdateRule {
 public:
  std::vector<Slot> slots() const override { return {}; }
  std::vector<Value> scalars(const Value& learning_rate, const Value& step) const override;
  Value update(const Value& variable, const Value& gradient, std::vector<Value>& slots,
               const std::vector<Value>& scalars) const override;
};

// Calls `f` in each update by a WatchedRule, on a thread that makes it and holds the shard's lock.
// One at a time; the servers and shards whose updates it watches must go before it.
class UpdateWatch {
 public:
  explicit UpdateWatch(std::function<void()> f);
  ~UpdateWatch();
  UpdateWatch(const UpdateWatch&) = delete;
  UpdateWatch& operator=(const UpdateWatch&) = delete;
};

}  // namespace cohort::testing
