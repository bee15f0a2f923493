#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/collective/communicator.h"
#include "core/collective/stall_warning.h"
#include "strategies/collective/nccl/device_library.h"

namespace cohort {

struct DeviceGroupOptions {
  DeviceLibrary* library;       // only joins the ranks
  std::vector<Device> devices;  // of this process's ranks, in order
  // How long the ranks wait for each other to join.
  std::chrono::milliseconds join_limit{60'000};
  // Whether it is an error on all ranks, kUnavailable, when one cannot join; else there are no
  // collectives on the devices then.
  bool must_join = false;
  // How long a rank waits for the others in a call; for ever without one.
  std::optional<std::chrono::milliseconds> limit;
  // Of a rank that waits for the others in a call of NCCL's.
  StallWarning stall = {};
};

struct DeviceGroup {
  std::vector<std::unique_ptr<Communicator>> communicators;
  // Why there are no collectives on the devices ("ranks 0 and 1 share one card (...)"); empty where
  // there are. The same on all ranks.
  std::string missing;
};

// Adds collectives on devices to communicators of host memory, `ranks` of this process, by which
// all ranks agree whether they can. All processes call it together. Everything else stays with the
// host's communicators; parts made by split() have no collectives on devices.
DeviceGroup add_device_collectives(std::vector<std::unique_ptr<Communicator>> ranks,
                                   const DeviceGroupOptions& options);

// Ends communicators of ranks of this process. Those with collectives on devices end all at once,
// each on a thread of its own: to leave a group of NCCL's, the ranks of a host wait for each other.
void end_together(std::vector<std::unique_ptr<Communicator>> ranks);

}  // namespace cohort
