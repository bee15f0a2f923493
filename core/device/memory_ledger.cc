#include "core/device/memory_ledger.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "core/base/comma_separated.h"
#include "core/base/format_number.h"

namespace cohort {

std::string format_bytes(size_t bytes) {
  constexpr std::array kUnits = {"KiB", "MiB", "GiB", "TiB"};
  constexpr double kStep = 1024;
  if (bytes < 1024) return str(bytes, " bytes");
  double amount = static_cast<double>(bytes) / kStep;
  size_t unit = 0;
  for (; amount >= kStep && unit + 1 < kUnits.size(); ++unit) amount /= kStep;
  return str(format_number(amount, std::chars_format::fixed, 2), " ", kUnits[unit]);
}

MemoryLedger::MemoryLedger(std::string device, size_t limit)
    : device_(std::move(device)), limit_(limit) {}

void MemoryLedger::take(size_t bytes, std::string_view purpose) {
  const std::lock_guard lock(mutex_);
  if (limit_ > 0 && (bytes > limit_ || used_ > limit_ - bytes))
    fail(Code::kResourceExhausted, purpose, " needs ", format_bytes(bytes), " on ", device_,
         ", which is limited to ", format_bytes(limit_), holders());
  if (bytes == 0) return;
  used_ += bytes;
  peak_ = std::max(peak_, used_);
  const auto it = by_purpose_.find(purpose);
  if (it != by_purpose_.end())
    it->second += bytes;
  else
    by_purpose_.emplace(purpose, bytes);
}

void MemoryLedger::give_back(size_t bytes, std::string_view purpose) {
  if (bytes == 0) return;
  const std::lock_guard lock(mutex_);
  const auto it = by_purpose_.find(purpose);
  COHORT_CHECK(it != by_purpose_.end() && it->second >= bytes && used_ >= bytes);
  used_ -= bytes;
  it->second -= bytes;
  if (it->second == 0) by_purpose_.erase(it);
}

Error MemoryLedger::refused(size_t bytes, std::string_view purpose, size_t free_on_card) const {
  const std::lock_guard lock(mutex_);
  return Error(Code::kResourceExhausted,
               str(purpose, " needs ", format_bytes(bytes), " on ", device_, ", whose card has ",
                   format_bytes(free_on_card), " left", holders()));
}

size_t MemoryLedger::used() const {
  const std::lock_guard lock(mutex_);
  return used_;
}

size_t MemoryLedger::peak() const {
  const std::lock_guard lock(mutex_);
  return peak_;
}

std::string MemoryLedger::holders() const {
  constexpr size_t kShown = 4;
  std::vector<std::pair<size_t, std::string_view>> all;
  for (const auto& [purpose, bytes] : by_purpose_) all.emplace_back(bytes, purpose);
  std::sort(all.rbegin(), all.rend());
  const auto in_words = [](const auto& part) {
    return str(format_bytes(part.first), " by ", part.second);
  };
  const std::string parts = comma_separated(all, in_words, kShown);
  return str("; ", format_bytes(used_), " of it are held", parts.empty() ? "" : ": ", parts);
}

}  // namespace cohort
