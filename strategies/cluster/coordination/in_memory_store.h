#pragma once

#include <condition_variable>
#include <mutex>

#include "strategies/cluster/coordination/key_value_store.h"
#include "strategies/cluster/coordination/value_table.h"

namespace cohort {

// A store for the threads of one process.
class InMemoryStore : public KeyValueStore {
 public:
  void set(std::string_view key, std::string_view value) override;
  std::string get(std::string_view key, std::chrono::milliseconds timeout) override;
  std::optional<std::string> find(std::string_view key) override;
  int64_t add(std::string_view key, int64_t amount) override;
  bool compare_set(std::string_view key, std::optional<std::string_view> expected,
                   std::string_view value) override;
  void erase(std::string_view key) override;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  coordination::ValueTable values_;
};

}  // namespace cohort
