#pragma once

#include <atomic>
#include <cstddef>
#include <string>

namespace cohort::parameter_server {

// What the values and slots of a server, and the places of rows that are made on first use, may
// take together. Thread-safe.
class MemoryBudget {
 public:
  explicit MemoryBudget(size_t bytes) : all_(bytes), left_(bytes) {}

  size_t left() const { return left_; }
  // For a shard. kResourceExhausted where there is not so much left; then nothing is taken.
  void take(size_t bytes, const std::string& shard);
  void give_back(size_t bytes) { left_ += bytes; }

 private:
  const size_t all_;
  std::atomic<size_t> left_;
};

// Some of a budget, which is given back with this at the latest.
class BudgetShare {
 public:
  // Of `budget`, which must outlive it; null: nobody counts.
  explicit BudgetShare(MemoryBudget* budget) : budget_(budget) {}
  ~BudgetShare() {
    if (budget_ != nullptr) budget_->give_back(bytes_);
  }
  BudgetShare(const BudgetShare&) = delete;
  BudgetShare& operator=(const BudgetShare&) = delete;

  // Takes more, as MemoryBudget::take.
  void add(size_t bytes, const std::string& shard) {
    if (budget_ == nullptr) return;
    budget_->take(bytes, shard);
    bytes_ += bytes;
  }
  // No more than was added.
  void give_back(size_t bytes) {
    if (budget_ == nullptr) return;
    budget_->give_back(bytes);
    bytes_ -= bytes;
  }

 private:
  MemoryBudget* const budget_;
  size_t bytes_ = 0;
};

}  // namespace cohort::parameter_server
