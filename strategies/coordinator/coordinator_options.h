#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <string>

#include "strategies/cluster/coordination/security.h"
#include "strategies/cluster/environment.h"

namespace cohort {

struct CoordinatorOptions {
  // As WorkerServerOptions::job_id.
  std::string job_id = {};
  // Functions that may wait; schedule() waits while there are so many. 0: any number.
  size_t max_queued = 256 * 1024;
  // How long schedule() waits for that, or for another thread's join(); then it throws
  // kDeadlineExceeded, which says who is at what, and has scheduled nothing.
  std::chrono::milliseconds schedule_timeout = std::chrono::hours(1);
  // A function that was in flight on so many workers when they were lost is given up (kAborted).
  int max_attempts = 8;
  // Worker i is given functions only when the coordinator has been there for i times this, or for
  // the limit: their first steps then come one after the other.
  std::chrono::milliseconds start_delay = std::chrono::milliseconds(0);
  std::chrono::milliseconds max_start_delay = std::chrono::minutes(1);
  // After so long without any worker, join() and the others throw kUnavailable.
  std::chrono::milliseconds worker_timeout = std::chrono::hours(1);
  // After an error what is being executed has so long to stop; then the call that waits for that
  // throws kDeadlineExceeded, which says who is at what, and the error is left to the next one.
  std::chrono::milliseconds stop_timeout = std::chrono::minutes(1);
  // Where no function has been executed for so long though some wait, lines say which worker is at
  // what; 0: never.
  std::chrono::milliseconds stuck_after = std::chrono::seconds(60);
  // Of the tensors that a function returns, and of those in one message of a worker.
  size_t max_bytes = size_t{4} << 30;
  // Where empty: COHORT_TLS_CERT, COHORT_TLS_KEY, COHORT_TLS_CA.
  TlsFiles tls = {};
  // Plain text beyond this host; also COHORT_ALLOW_PLAINTEXT=1.
  bool allow_plaintext = false;
  // Gets lines for people, without a newline; where empty, they go to standard error. May be called
  // from any thread.
  std::function<void(const std::string& line)> notice = {};
};

namespace coordinator {

// With what the environment says of those that are left empty. kInvalidArgument for numbers out of
// range.
CoordinatorOptions completed(CoordinatorOptions options, const Environment& environment);

}  // namespace coordinator

}  // namespace cohort
