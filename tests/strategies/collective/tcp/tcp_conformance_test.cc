#include "tests/collective/conformance.h"
#include "tests/strategies/collective/tcp/tcp_group.h"
#include "tests/testing/certificates.h"

namespace cohort::testing {
namespace {

// Who talks to whom depends on the size alone, and checks are made of one connection at a time:
// each size is tried with checks or without.
INSTANTIATE_TEST_SUITE_P(Tcp, CommunicatorConformanceTest,
                         groups_of({{"Plain", [](int size) { return make_tcp_group(size); }}},
                                   {1, 2, 3, 5, 8}),
                         group_name);
INSTANTIATE_TEST_SUITE_P(TcpChecked, CommunicatorConformanceTest,
                         groups_of({{"Checked",
                                     [](int size) {
                                       return make_tcp_group(size, {.check_payloads = true});
                                     }}},
                                   {4, 6, 7}),
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
