#include "strategies/cluster/launcher/round_failures.h"

#include <algorithm>
#include <cstdint>

#include "core/base/error.h"

namespace cohort::launcher {
namespace {

constexpr size_t kMaxEnds = 200;  // lines of a summary about tasks that are not to blame

}  // namespace

void RoundFailures::note_trouble(int node) {
  if (std::ranges::find(troubled_, node) == troubled_.end()) troubled_.push_back(node);
}

void RoundFailures::add(int node, const std::string& label, const Failure& failure) {
  const auto trouble = std::ranges::find(troubled_, node);
  if (trouble == troubled_.end()) return;
  blame({failure, label, static_cast<size_t>(trouble - troubled_.begin())});
}

void RoundFailures::add_loss(const std::string& label, const std::string& how, int code) {
  blame({{.what = str("was lost: ", how), .code = code, .weight = kWeightOfLoss},
         label,
         troubled_.size()});
}

void RoundFailures::blame(Blame blame) {
  const auto likelihood = [](const Blame& of) {
    return std::pair(of.failure.weight, -static_cast<int64_t>(of.trouble));
  };
  if (!blame_) {
    blame_ = std::move(blame);
    return;
  }
  if (likelihood(blame) > likelihood(*blame_)) std::swap(blame, *blame_);
  ends_.push_back(describe(blame));
}

std::optional<int> RoundFailures::culprit() const {
  if (!blame_ || blame_->failure.weight != kWeightOfCause) return std::nullopt;
  return troubled_[blame_->trouble];
}

std::string RoundFailures::describe(const Blame& blame) {
  const Failure& failure = blame.failure;
  return failure.weight == kWeightOfLoss ? str(blame.label, " ", failure.what)
                                         : str(failure.what, " on ", blame.label);
}

std::vector<std::string> RoundFailures::summary() const {
  if (!blame_) return {};
  const Failure& failure = blame_->failure;
  const bool printed = !failure.last_lines.empty();
  const char* silence =
      failure.weight == kWeightOfLoss ? "" : "; nothing that it printed has arrived";
  std::vector<std::string> lines = {
      str("failed: ", describe(*blame_), printed ? "; its last lines:" : silence)};
  for (const auto& line : failure.last_lines) lines.push_back("  | " + line);
  for (size_t i = 0; i < std::min(ends_.size(), kMaxEnds); ++i) lines.push_back("then " + ends_[i]);
  if (ends_.size() > kMaxEnds) {
    lines.push_back(str("then ", ends_.size() - kMaxEnds, " more tasks ended"));
  }
  return lines;
}

}  // namespace cohort::launcher
