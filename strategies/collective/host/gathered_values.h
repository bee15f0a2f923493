#pragma once

#include <chrono>
#include <string>
#include <string_view>
#include <vector>

#include "strategies/cluster/coordination/key_value_store.h"

namespace cohort {

// How the processes of a group find each other: every process sets its value of a kind, and gets
// those of all.
class GatheredValues {
 public:
  // Keys begin with `group`. All waiting together takes no longer than `limit`. `tasks` are what
  // errors call the processes; empty where they have no names.
  GatheredValues(KeyValueStore& store, std::string group, int process, int processes,
                 std::chrono::milliseconds limit, std::vector<std::string> tasks = {});

  // The values of all processes, of which `value` is this one's. kDeadlineExceeded names those that
  // have not come.
  std::vector<std::string> gather(std::string_view kind, std::string_view value);
  // A value that one process sets.
  void set(std::string_view key, std::string_view value);
  std::string get(std::string_view key);
  // The last process to call it removes the gathered values of these kinds, and the keys: when
  // everybody has them.
  void forget(const std::vector<std::string>& kinds, const std::vector<std::string>& keys);

 private:
  std::string name(std::string_view key) const;
  std::string name(std::string_view kind, int process) const;
  [[noreturn]] void miss(const std::vector<int>& processes) const;
  std::chrono::milliseconds rest() const;

  KeyValueStore& store_;
  const std::string group_;
  const int process_, processes_;
  const std::chrono::milliseconds limit_;
  const std::vector<std::string> tasks_;
  const std::chrono::steady_clock::time_point deadline_;
};

}  // namespace cohort
