#include "strategies/cluster/coordination/grpc_log.h"

#include <chrono>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include <grpc/support/log.h>

#include "core/base/error.h"
#include "core/base/notice.h"
#include "core/base/quote.h"

namespace cohort::coordination {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::minutes kQuiet(1);

// Errors by where they come from.
class Errors {
 public:
  // How many there were at a place that nobody was told of; nothing where one was told of a moment
  // ago.
  std::optional<uint64_t> count(const std::string& place, Clock::time_point now) {
    const std::lock_guard lock(mutex_);
    const auto [known, is_new] = places_.try_emplace(place, Told{.last = now});
    Told& told = known->second;
    if (!is_new && now - told.last < kQuiet) {
      ++told.since;
      return std::nullopt;
    }
    told.last = now;
    return std::exchange(told.since, 0);
  }

 private:
  struct Told {
    Clock::time_point last;
    uint64_t since = 0;
  };
  std::mutex mutex_;
  std::map<std::string, Told> places_;
};

void print(gpr_log_func_args* said) {
  static Errors& errors = *new Errors;  // gRPC's threads may outlive static objects
  const std::string place = str(said->file, ":", said->line);
  uint64_t since = 0;
  if (said->severity == GPR_LOG_SEVERITY_ERROR) {
    const auto untold = errors.count(place, Clock::now());
    if (!untold) return;
    since = *untold;
  }
  print_notice(str("gRPC: ", printable(said->message), " [", place, "]",
                   since > 0 ? str(" (and ", since, " times since this was last said)") : "",
                   "\n"));
}

}  // namespace

void limit_grpc_errors() { gpr_set_log_function(print); }

}  // namespace cohort::coordination
