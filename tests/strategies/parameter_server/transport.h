#pragma once

#include <cstdlib>
#include <string_view>

namespace cohort::testing {

// The same tests run over shared memory and over gRPC.
inline bool by_shared_memory() {
  const char* transport = std::getenv("COHORT_TEST_TRANSPORT");
  return transport == nullptr || std::string_view(transport) != "grpc";
}

}  // namespace cohort::testing
