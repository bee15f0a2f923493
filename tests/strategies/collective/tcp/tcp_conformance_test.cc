#include "tests/collective/conformance.h"
#include "tests/strategies/collective/tcp/tcp_group.h"
#include "tests/testing/certificates.h"

namespace cohort::testing {
namespace {

INSTANTIATE_TEST_SUITE_P(Tcp, CommunicatorConformanceTest,
                         groups_of({{"Plain", [](int size) { return make_tcp_group(size); }},
                                    {"Checked",
                                     [](int size) {
                                       return make_tcp_group(size, {.check_payloads = true});
                                     }}}),
                         group_name);

// Over TLS, in groups of few sizes.
const Certificates& certificates() {
  static const Certificates made;
  return made;
}
INSTANTIATE_TEST_SUITE_P(TcpTls, CommunicatorConformanceTest,
                         ::testing::Combine(::testing::Values(Backend{
                                                "Encrypted",
                                                [](int size) {
                                                  return make_tcp_group(
                                                      size, {.tls = certificates().files()});
                                                }}),
                                            ::testing::Values(2, 5)),
                         group_name);

}  // namespace
}  // namespace cohort::testing
