#include "strategies/cluster/coordination/shared_values.h"

#include <utility>

#include "strategies/cluster/coordination/limits.h"

namespace cohort::coordination {

Answers SharedValues::set(Caller caller, const std::string& key, const std::string& value) try {
  values_.set(key, value);
  Answers answers = {{caller}};
  answer_waiters(key, answers);
  return answers;
} catch (const Error& error) {
  return {{caller, error}};
}

Answers SharedValues::add(Caller caller, const std::string& key, int64_t amount) try {
  Answers answers = {{.to = caller, .number = values_.add(key, amount)}};
  answer_waiters(key, answers);
  return answers;
} catch (const Error& error) {
  return {{caller, error}};
}

Answers SharedValues::compare_set(Caller caller, const std::string& key,
                                  std::optional<std::string_view> expected,
                                  const std::string& value) try {
  if (!values_.compare_set(key, expected, value)) return {{caller}};
  Answers answers = {{.to = caller, .number = 1}};
  answer_waiters(key, answers);
  return answers;
} catch (const Error& error) {
  return {{caller, error}};
}

Answers SharedValues::find(Caller caller, const std::string& key) const try {
  const std::string* value = values_.find(key);
  if (value == nullptr) return {{caller}};
  return {{.to = caller, .value = *value, .number = 1}};
} catch (const Error& error) {
  return {{caller, error}};
}

Answers SharedValues::erase(Caller caller, const std::string& key) try {
  values_.erase(key);
  return {{caller}};
} catch (const Error& error) {
  return {{caller, error}};
}

Answers SharedValues::get(Caller caller, const std::string& key, std::chrono::milliseconds timeout,
                          Time now) try {
  if (const std::string* value = values_.find(key)) return {{.to = caller, .value = *value}};
  if (timeout <= std::chrono::milliseconds(0)) return {{caller, missing_key(key, timeout)}};
  waiting_[key].push_back({caller, timeout, now + timeout});
  return {};
} catch (const Error& error) {
  return {{caller, error}};
}

Answers SharedValues::expire(Time now) {
  Answers answers;
  for (auto& [key, waiters] : waiting_) {
    std::erase_if(waiters, [&](const Waiter& waiter) {
      if (waiter.deadline > now) return false;
      answers.push_back({waiter.caller, missing_key(key, waiter.timeout)});
      return true;
    });
  }
  std::erase_if(waiting_, [](const auto& entry) { return entry.second.empty(); });
  return answers;
}

void SharedValues::answer_waiters(const std::string& key, Answers& answers) {
  const auto found = waiting_.find(key);
  if (found == waiting_.end()) return;
  for (const Waiter& waiter : found->second) {
    answers.push_back({.to = waiter.caller, .value = *values_.find(key)});
  }
  waiting_.erase(found);
}

}  // namespace cohort::coordination
