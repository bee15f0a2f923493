#include "strategies/cluster/coordination/in_memory_store.h"

#include "core/base/error.h"
#include "core/base/time_limits.h"
#include "strategies/cluster/coordination/limits.h"

namespace cohort {

void InMemoryStore::set(std::string_view key, std::string_view value) {
  {
    std::lock_guard lock(mutex_);
    values_.set(key, value);
  }
  changed_.notify_all();
}

std::string InMemoryStore::get(std::string_view key, std::chrono::milliseconds timeout) {
  const auto deadline = std::chrono::steady_clock::now() + clamped(timeout);
  std::unique_lock lock(mutex_);
  const std::string* value = nullptr;
  if (!changed_.wait_until(lock, deadline,
                           [&] { return (value = values_.find(key)) != nullptr; })) {
    throw coordination::missing_key(key, timeout);
  }
  return *value;
}

std::optional<std::string> InMemoryStore::find(std::string_view key) {
  std::lock_guard lock(mutex_);
  const std::string* value = values_.find(key);
  return value == nullptr ? std::nullopt : std::optional(*value);
}

int64_t InMemoryStore::add(std::string_view key, int64_t amount) {
  int64_t sum = 0;
  {
    std::lock_guard lock(mutex_);
    sum = values_.add(key, amount);
  }
  changed_.notify_all();
  return sum;
}

bool InMemoryStore::compare_set(std::string_view key, std::optional<std::string_view> expected,
                                std::string_view value) {
  bool is_set = false;
  {
    std::lock_guard lock(mutex_);
    is_set = values_.compare_set(key, expected, value);
  }
  changed_.notify_all();
  return is_set;
}

void InMemoryStore::erase(std::string_view key) {
  std::lock_guard lock(mutex_);
  values_.erase(key);
}

}  // namespace cohort
