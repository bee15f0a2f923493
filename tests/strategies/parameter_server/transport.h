#pragma once

#include <cstdlib>
#include <string>

#include "core/base/error.h"
#include "strategies/parameter_server/client.h"

namespace cohort::testing {

// The same tests run over all of them.
inline Transport transport() {
  const char* variable = std::getenv("COHORT_TEST_TRANSPORT");
  const std::string name = variable == nullptr ? "memory" : variable;
  if (name == "memory") return Transport::kSharedMemory;
  if (name == "direct") return Transport::kDirect;
  COHORT_CHECK(name == "grpc");
  return Transport::kGrpc;
}

}  // namespace cohort::testing
