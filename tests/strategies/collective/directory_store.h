#pragma once

#include <optional>
#include <string>

#include "strategies/cluster/coordination/key_value_store.h"

namespace cohort::testing {

// A store for processes that have a folder in common: a file for each key.
class DirectoryStore : public KeyValueStore {
 public:
  explicit DirectoryStore(std::string folder) : folder_(std::move(folder)) {}

  void set(std::string_view key, std::string_view value) override;
  std::string get(std::string_view key, std::chrono::milliseconds timeout) override;
  std::optional<std::string> find(std::string_view key) override;
  int64_t add(std::string_view key, int64_t amount) override;
  bool compare_set(std::string_view key, std::optional<std::string_view> expected,
                   std::string_view value) override;
  void erase(std::string_view key) override;

 private:
  std::string path(std::string_view key) const;
  // Keeps other processes from add() and compare_set() until this descriptor is closed.
  int lock() const;

  const std::string folder_;
};

}  // namespace cohort::testing
