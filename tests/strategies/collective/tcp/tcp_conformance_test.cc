#include "tests/collective/conformance.h"
#include "tests/strategies/collective/tcp/tcp_group.h"

namespace cohort::testing {
namespace {

INSTANTIATE_TEST_SUITE_P(Tcp, CommunicatorConformanceTest,
                         groups_of({{"Plain", [](int size) { return make_tcp_group(size); }},
                                    {"Checked",
                                     [](int size) {
                                       return make_tcp_group(size, {.check_payloads = true});
                                     }}}),
                         group_name);

}  // namespace
}  // namespace cohort::testing
