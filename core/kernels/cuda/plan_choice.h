#pragma once

#include <cstddef>
#include <optional>
#include <utility>

namespace cohort::cuda {

// Chooses among plans that are offered the quickest first: the first whose workspace is not large,
// and where all are, the first, unless a later one takes less than half of what it does.
template <typename Plan>
class PlanChoice {
 public:
  static constexpr size_t kLargeWorkspace = size_t{1} << 30;

  // True when no other plan need be offered.
  bool offer(Plan plan, size_t workspace_bytes) {
    const bool is_large = workspace_bytes > kLargeWorkspace;
    if (!chosen_ || !is_large || workspace_bytes < workspace_bytes_ / 2) {
      chosen_ = std::move(plan);
      workspace_bytes_ = workspace_bytes;
    }
    return !is_large;
  }

  const std::optional<Plan>& chosen() const { return chosen_; }  // none where none was offered

 private:
  std::optional<Plan> chosen_;
  size_t workspace_bytes_ = 0;
};

}  // namespace cohort::cuda
