#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string_view>

namespace cohort {

// What carries collectives: chosen by device (kAuto), host memory and sockets (kRing), or NCCL.
enum class CommunicationImplementation { kAuto, kRing, kNccl };
// "auto", "ring", "nccl", in any case; kInvalidArgument lists the allowed names.
CommunicationImplementation communication_implementation_from_name(std::string_view name);

// Hints for collectives (tf.distribute.experimental.CommunicationOptions).
struct CommunicationOptions {
  // Gradients are reduced in buckets of at least this size, the last ones apart, in the order in
  // which they become ready. 0 chooses: 1 MiB for the first, so that reduction starts early, and 8
  // MiB for those after it.
  int64_t bytes_per_pack = 0;
  // How long a replica may wait for the others in one collective, and a worker for the others
  // before a step, in Strategy::reduce and in gather; then the step, or the call, is
  // kDeadlineExceeded, naming who is late. What one worker does alone before a step counts: reading
  // its input, callbacks. For debugging, since it costs a thread for each replica. None: for ever,
  // and workers before a step as long as worker_timeout; more than a year is as good as none.
  std::optional<double> timeout_seconds = {};
  CommunicationImplementation implementation = CommunicationImplementation::kAuto;

  // kInvalidArgument for a negative size, or a time-out that is not positive.
  void validate() const;
  // timeout_seconds, rounded up, of which sums with the clock stay in range.
  std::optional<std::chrono::milliseconds> limit() const;
  // These options with the fields of `other` that are not at their default.
  CommunicationOptions merge(const CommunicationOptions& other) const;
};

}  // namespace cohort
