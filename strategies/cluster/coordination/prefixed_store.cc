#include "strategies/cluster/coordination/prefixed_store.h"

#include "core/base/error.h"
#include "core/base/quote.h"

namespace cohort {

template <typename Ask>
auto PrefixedStore::with_whole(std::string_view key, const Ask& ask) const {
  const size_t most = kMaxKeyBytes - prefix_.size();
  if (key.empty() || key.size() > most)
    invalid("key ", quote(key), " has ", key.size(), " bytes; expected 1 to ", most);
  const std::string whole = str(prefix_, key);
  try {
    return ask(whole);
  } catch (const Error& error) {
    std::string message = error.message();
    const std::string named = quote(whole);
    if (const size_t at = message.find(named); at != std::string::npos)
      message.replace(at, named.size(), quote(key));
    throw Error(error.code(), std::move(message), error.peer());
  }
}

void PrefixedStore::set(std::string_view key, std::string_view value) {
  with_whole(key, [&](const std::string& whole) { store_.set(whole, value); });
}

std::string PrefixedStore::get(std::string_view key, std::chrono::milliseconds timeout) {
  return with_whole(key, [&](const std::string& whole) { return store_.get(whole, timeout); });
}

std::optional<std::string> PrefixedStore::find(std::string_view key) {
  return with_whole(key, [&](const std::string& whole) { return store_.find(whole); });
}

int64_t PrefixedStore::add(std::string_view key, int64_t amount) {
  return with_whole(key, [&](const std::string& whole) { return store_.add(whole, amount); });
}

bool PrefixedStore::compare_set(std::string_view key, std::optional<std::string_view> expected,
                                std::string_view value) {
  return with_whole(
      key, [&](const std::string& whole) { return store_.compare_set(whole, expected, value); });
}

void PrefixedStore::erase(std::string_view key) {
  with_whole(key, [&](const std::string& whole) { store_.erase(whole); });
}

}  // namespace cohort
