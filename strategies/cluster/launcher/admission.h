#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "strategies/cluster/launcher/job_rules.h"
#include "strategies/cluster/launcher/messages.h"
#include "strategies/cluster/launcher/node.h"

// What keeps a node out of a job, in whatever state that is.
namespace cohort::launcher {

// A node that has no place in a round yet, for people.
std::string label_of(const Node& node);

template <typename... Parts>
Refused refuse(Code code, const Parts&... parts) {
  return {static_cast<int>(code), str(parts...)};
}

// That it speaks another protocol, is of another job, or has other terms.
std::optional<Refused> disagreement(const Join& join, const JobRules& rules);

// That with it, beside the others, the job would have more tasks than are possible. `place` is that
// of the rendezvous, for people.
std::optional<Refused> excess(const Node& joining, const std::vector<const Node*>& others,
                              const std::string& place);

}  // namespace cohort::launcher
