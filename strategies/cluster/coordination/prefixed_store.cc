#include "strategies/cluster/coordination/prefixed_store.h"

#include "core/base/error.h"

namespace cohort {

std::string PrefixedStore::whole(std::string_view key) const {
  if (key.empty()) invalid("a key has 0 bytes; expected 1 to ", kMaxKeyBytes - prefix_.size());
  return str(prefix_, key);
}

void PrefixedStore::set(std::string_view key, std::string_view value) {
  store_.set(whole(key), value);
}

std::string PrefixedStore::get(std::string_view key, std::chrono::milliseconds timeout) {
  return store_.get(whole(key), timeout);
}

std::optional<std::string> PrefixedStore::find(std::string_view key) {
  return store_.find(whole(key));
}

int64_t PrefixedStore::add(std::string_view key, int64_t amount) {
  return store_.add(whole(key), amount);
}

bool PrefixedStore::compare_set(std::string_view key, std::optional<std::string_view> expected,
                                std::string_view value) {
  return store_.compare_set(whole(key), expected, value);
}

void PrefixedStore::erase(std::string_view key) { store_.erase(whole(key)); }

}  // namespace cohort
