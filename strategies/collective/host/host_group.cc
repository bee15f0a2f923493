#include "strategies/collective/host/host_group.h"

#include <algorithm>

namespace cohort {

HostGroup::HostGroup(ControlBlock control, std::vector<HostMember> members,
                     std::optional<std::chrono::milliseconds> limit, StallWarning stall)
    : control(std::move(control)),
      members(std::move(members)),
      limit(limit),
      stall(std::move(stall)) {
  std::vector<ProcessIdentity> known{this_process()};
  for (int r = 0; r < size(); ++r) {
    const auto& [process, index, task] = this->members[static_cast<size_t>(r)];
    peers.pids.push_back(process.pid);
    peers.tasks.push_back(task);
    if (std::find(known.begin(), known.end(), process) != known.end()) continue;
    known.push_back(process);
    peers.processes.push_back({r, ProcessWatch(process)});
  }
}

bool HostGroup::one_process() const {
  return std::all_of(members.begin(), members.end(),
                     [&](const HostMember& m) { return m.index == members[0].index; });
}

}  // namespace cohort
