#include "tests/collective/conformance.h"
#include "tests/strategies/collective/connected_groups.h"

namespace cohort::testing {
namespace {

// Groups of one size each, as processes on hosts.
Backend on_hosts(std::string name, std::vector<int> hosts, int ranks_per_process = 1) {
  return {std::move(name), [=](int /*size*/) { return group_on_hosts(hosts, ranks_per_process); }};
}

INSTANTIATE_TEST_SUITE_P(Hierarchical, CommunicatorConformanceTest,
                         ::testing::Values(std::tuple(on_hosts("TwoAndOne", {0, 0, 1}), 3),
                                           std::tuple(on_hosts("TwoByTwo", {0, 0, 1, 1}), 4),
                                           std::tuple(on_hosts("OneAndThree", {0, 1, 1, 1}), 4),
                                           std::tuple(on_hosts("Interleaved", {2, 0, 1, 0, 2}), 5),
                                           std::tuple(on_hosts("Threads", {0, 1, 0}, 2), 6)),
                         group_name);

}  // namespace
}  // namespace cohort::testing
