#pragma once

#include <string>
#include <utility>

#include "strategies/cluster/coordination/key_value_store.h"

namespace cohort {

// Those keys of another store that begin with a prefix, which callers leave out, as do errors: so
// they cannot touch the others. Keys are shorter by it.
class PrefixedStore final : public KeyValueStore {
 public:
  // `store` outlives this.
  PrefixedStore(KeyValueStore& store, std::string prefix)
      : store_(store), prefix_(std::move(prefix)) {}

  void set(std::string_view key, std::string_view value) override;
  std::string get(std::string_view key, std::chrono::milliseconds timeout) override;
  std::optional<std::string> find(std::string_view key) override;
  int64_t add(std::string_view key, int64_t amount) override;
  bool compare_set(std::string_view key, std::optional<std::string_view> expected,
                   std::string_view value) override;
  void erase(std::string_view key) override;
  void check() const override { store_.check(); }

 private:
  // What `ask` returns for the whole key.
  template <typename Ask>
  auto with_whole(std::string_view key, const Ask& ask) const;

  KeyValueStore& store_;
  const std::string prefix_;
};

}  // namespace cohort
