#include "strategies/cluster/launcher/memory_kills.h"

#include <algorithm>
#include <fstream>
#include <optional>
#include <utility>

#include "core/base/control_groups.h"
#include "core/base/error.h"

namespace cohort::launcher {
namespace {

// The number behind `name` in a file of such lines.
std::optional<int64_t> number_in(const std::string& path, const std::string& name) {
  std::ifstream file(path);
  std::string found;
  for (int64_t number = 0; file >> found >> number;)
    if (found == name) return number;
  return std::nullopt;
}

// Nothing where there is no such number.
std::optional<int64_t> read_number(const std::string& path) {
  std::ifstream file(path);
  int64_t number = 0;
  return file >> number ? std::optional(number) : std::nullopt;
}

// The following of a control group, by the files of version 2, else by those of version 1.

// Nothing where it does not count, as where it has no limits for memory.
std::optional<int64_t> kills_in(const std::string& group) {
  const auto kills = number_in(group + "/memory.events", "oom_kill");
  return kills ? kills : number_in(group + "/memory.oom_control", "oom_kill");
}

int64_t refusals_in(const std::string& group) {
  if (const auto refusals = number_in(group + "/memory.events", "oom")) return *refusals;
  return read_number(group + "/memory.failcnt").value_or(0) +
         read_number(group + "/memory.memsw.failcnt").value_or(0);
}

std::optional<int64_t> limit_of(const std::string& group) {
  const auto limit = read_number(group + "/memory.max");
  return limit ? limit : read_number(group + "/memory.limit_in_bytes");
}

}  // namespace

MemoryKills::MemoryKills(std::string root) : root_(std::move(root)) {
  for (std::string& group : control_groups("memory", root_))
    if (kills_in(group)) groups_.push_back({group, refusals_in(group)});
  told_ = count();
}

// Where no group counts, as in the topmost of version 2, those of the whole host are the only ones.
int64_t MemoryKills::count() const {
  const auto kills = groups_.empty() ? number_in(root_ + "/proc/vmstat", "oom_kill")
                                     : kills_in(groups_.front().folder);
  return kills.value_or(told_);
}

std::string MemoryKills::explain_next() {
  if (count() <= told_) return "";
  ++told_;
  // Of groups inside each other, the innermost has the limit; the host's own lack is none of
  // theirs.
  const auto full = std::ranges::find_if(
      groups_, [](const Group& group) { return refusals_in(group.folder) > group.refusals; });
  if (full == groups_.end()) return "the host was out of memory";
  const auto limit = limit_of(full->folder);
  return str("its control group was out of memory",
             limit ? str(" (limit ", *limit, " bytes)") : "");
}

}  // namespace cohort::launcher
