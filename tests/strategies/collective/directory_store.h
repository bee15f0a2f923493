#pragma once

#include <string>

#include "strategies/cluster/coordination/key_value_store.h"

namespace cohort::testing {

// A store for processes that have a folder in common: a file for each key.
class DirectoryStore : public KeyValueStore {
 public:
  explicit DirectoryStore(std::string folder) : folder_(std::move(folder)) {}

  void set(std::string_view key, std::string_view value) override;
  std::string get(std::string_view key, std::chrono::milliseconds timeout) override;
  int64_t add(std::string_view key, int64_t amount) override;
  void erase(std::string_view key) override;

 private:
  std::string path(std::string_view key) const;

  const std::string folder_;
};

}  // namespace cohort::testing
