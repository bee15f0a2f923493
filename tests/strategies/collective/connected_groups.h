#pragma once

#include <functional>
#include <string>
#include <vector>

#include "strategies/collective/make_communicators.h"
#include "tests/collective/ranks.h"

namespace cohort::testing {

// What threads get that stand for the processes of a group; `change` sets what is special to one.
// A process that gets an error fails the test, and has no ranks.
std::vector<ConnectedGroup> connect_group(int processes, int ranks_per_process,
                                          const std::function<void(int, GroupOptions&)>& change);

// The ranks of all processes, in order; those whose connection is not `connection` fail the test.
Group ranks_of(std::vector<ConnectedGroup> processes, const std::string& connection);

// A group whose process p is on host hosts[p].
Group group_on_hosts(const std::vector<int>& hosts, int ranks_per_process = 1,
                     const std::function<void(GroupOptions&)>& change = {});

}  // namespace cohort::testing
