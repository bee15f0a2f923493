#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "strategies/collective/host/control_block.h"
#include "strategies/collective/host/shared_meeting.h"

namespace cohort {

// A rank: the process that it lives in, which is the `index`-th of the group in which it joined,
// and the name of its task, or none.
struct HostMember {
  ProcessIdentity process;
  int index;
  std::string task;
};

// What the ranks of a group that live in this process share.
struct HostGroup {
  // `members` are the ranks. kUnavailable when a process has ended already.
  HostGroup(ControlBlock control, std::vector<HostMember> members,
            std::optional<std::chrono::milliseconds> limit, StallWarning stall);

  int size() const { return static_cast<int>(members.size()); }
  // Whether all ranks are threads of one process, which see all of each other's memory.
  bool one_process() const;

  ControlBlock control;
  const std::vector<HostMember> members;  // by rank
  HostPeers peers;
  const std::optional<std::chrono::milliseconds> limit;
  const StallWarning stall;
};

}  // namespace cohort
