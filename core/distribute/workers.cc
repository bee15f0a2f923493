#include "core/distribute/workers.h"

#include <utility>

#include "core/base/program.h"

namespace cohort {

namespace {
// Of TogetherScope. Keeps the exception, so that no other one has its address meanwhile.
using Told = std::pair<const Workers*, std::exception_ptr>;
thread_local int t_depth = 0;
thread_local Told t_told;
}  // namespace

std::string Workers::name(int rank) const { return str("worker:", rank); }

std::vector<std::string> Workers::exchange(const std::string&, std::string_view value) {
  return {std::string(value)};
}

void Workers::broadcast(const std::string&, void*, size_t) {}

void Workers::fail(const Error& error) { throw error; }

bool Workers::stop_requested() const { return interrupted(); }

std::chrono::nanoseconds Workers::chief_time() const {
  return std::chrono::steady_clock::now().time_since_epoch();
}

Error error_for_others(const std::exception& thrown) {
  if (dynamic_cast<const std::bad_alloc*>(&thrown) != nullptr)
    return Error(Code::kResourceExhausted, str("there is no memory: ", thrown.what()));
  return Error(Code::kAborted, thrown.what());
}

TogetherScope::TogetherScope() { ++t_depth; }

TogetherScope::~TogetherScope() {
  if (--t_depth == 0) t_told = {};
}

void TogetherScope::tell_once(Workers& workers, const std::exception& thrown) {
  const Told own(&workers, std::current_exception());
  if (own == t_told) return;
  t_told = own;
  try {
    workers.fail(error_for_others(thrown));
  } catch (const Error&) {  // what the others throw
  }
}

std::string from_chief(Workers& workers, const std::string& topic,
                       const std::function<std::string()>& work) {
  const std::string value = workers.is_chief() ? together(workers, work) : std::string();
  return workers.exchange(topic, value).front();
}

}  // namespace cohort
