#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace cohort::coordination {

// The values of a KeyValueStore, with its limits. Not synchronised; the errors are those of the
// store.
class ValueTable {
 public:
  void set(std::string_view key, std::string_view value);
  // The value, or null where there is none. Stays until the next change.
  const std::string* find(std::string_view key) const;
  int64_t add(std::string_view key, int64_t amount);
  bool compare_set(std::string_view key, std::optional<std::string_view> expected,
                   std::string_view value);
  void erase(std::string_view key);

 private:
  std::map<std::string, std::string, std::less<>> values_;
  size_t bytes_ = 0;  // of all entries
};

}  // namespace cohort::coordination
