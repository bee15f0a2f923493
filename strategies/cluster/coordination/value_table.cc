#include "strategies/cluster/coordination/value_table.h"

#include <charconv>

#include "core/base/error.h"
#include "strategies/cluster/coordination/key_value_store.h"
#include "strategies/cluster/parsing.h"

namespace cohort::coordination {
namespace {

void check_key(std::string_view key) {
  if (key.empty() || key.size() > KeyValueStore::kMaxKeyBytes) {
    invalid("key ", quote(key), " has ", key.size(), " bytes; expected 1 to ",
            KeyValueStore::kMaxKeyBytes);
  }
}

// What an entry takes.
size_t entry_bytes(std::string_view key, std::string_view value) {
  return KeyValueStore::kEntryBytes + key.size() + value.size();
}

int64_t number(std::string_view key, const std::string& value) {
  int64_t number = 0;
  const char* end = value.data() + value.size();
  const auto [stop, error] = std::from_chars(value.data(), end, number);
  if (error != std::errc() || stop != end) {
    fail(Code::kFailedPrecondition, "key ", quote(key), " holds ", quote(value),
         ", which is no number to add to");
  }
  return number;
}

}  // namespace

void ValueTable::set(std::string_view key, std::string_view value) {
  check_key(key);
  if (value.size() > KeyValueStore::kMaxValueBytes) {
    invalid("the value of key ", quote(key), " has ", value.size(), " bytes; at most ",
            KeyValueStore::kMaxValueBytes, " are allowed");
  }
  const auto found = values_.find(key);
  const size_t before = found == values_.end() ? 0 : entry_bytes(key, found->second);
  const size_t after = bytes_ - before + entry_bytes(key, value);
  if (after > KeyValueStore::kMaxStoreBytes) {
    fail(Code::kResourceExhausted, "no room for key ", quote(key), ": the store would hold ", after,
         " bytes; at most ", KeyValueStore::kMaxStoreBytes, " are allowed");
  }
  if (found == values_.end()) {
    values_.emplace(key, value);
  } else {
    found->second = value;
  }
  bytes_ = after;
}

const std::string* ValueTable::find(std::string_view key) const {
  check_key(key);
  const auto found = values_.find(key);
  return found == values_.end() ? nullptr : &found->second;
}

int64_t ValueTable::add(std::string_view key, int64_t amount) {
  const std::string* value = find(key);
  int64_t sum = 0;
  if (__builtin_add_overflow(value ? number(key, *value) : 0, amount, &sum)) {
    fail(Code::kOutOfRange, "key ", quote(key), " holds ", *value, "; adding ", amount,
         " goes beyond 64 bits");
  }
  set(key, std::to_string(sum));
  return sum;
}

bool ValueTable::compare_set(std::string_view key, std::optional<std::string_view> expected,
                             std::string_view value) {
  const size_t bytes = expected.value_or("").size() + value.size();
  if (bytes > KeyValueStore::kMaxValueBytes) {
    invalid("the value of key ", quote(key), " and the one that is expected have ", bytes,
            " bytes; together at most ", KeyValueStore::kMaxValueBytes, " are allowed");
  }
  const std::string* found = find(key);
  if (expected ? found == nullptr || *found != *expected : found != nullptr) return false;
  set(key, value);
  return true;
}

void ValueTable::erase(std::string_view key) {
  check_key(key);
  const auto found = values_.find(key);
  if (found == values_.end()) return;
  bytes_ -= entry_bytes(key, found->second);
  values_.erase(found);
}

}  // namespace cohort::coordination
