#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "core/collective/device_collectives.h"
#include "core/collective/stall_warning.h"
#include "strategies/collective/nccl/launch_gate.h"

namespace cohort {

// A library of collectives between devices: NCCL, or for GPUs of one card SharedCardLibrary; a
// simulation in tests. Thread-safe.
class DeviceLibrary {
 public:
  virtual ~DeviceLibrary() = default;
  virtual std::string name() const = 0;  // "NCCL"
  // What two devices of a group may not have in common, the same wherever they are asked about: a
  // card. Its first line is for people, another one only tells it from places of that name. Throws
  // why a device cannot take part (kUnimplemented, kUnavailable).
  virtual std::string place_of(Device device) const = 0;
  // What the ranks of one new group have to know; made by one of them. Of id_bytes() bytes.
  virtual std::string make_id() const = 0;
  virtual size_t id_bytes() const = 0;
  // Joins the group, which works when all have come back: all its ranks call it, each on a thread
  // of its own. kDeadlineExceeded where they have not within `join_limit`. A rank waits `limit` for
  // the others in a call, whatever its own computation before it takes; for ever without one. Of
  // NCCL's, `stall` warns meanwhile.
  struct Membership {
    std::string id;
    int rank, size;
    Device device;
    std::chrono::milliseconds join_limit;
    std::optional<std::chrono::milliseconds> limit;
    StallWarning stall;
    std::shared_ptr<LaunchGate> gate;  // of all ranks of this process
  };
  virtual std::unique_ptr<DeviceCollectives> join(const Membership& membership) = 0;
};

// NCCL, in builds with CUDA; null in others.
DeviceLibrary* nccl_library();

}  // namespace cohort
