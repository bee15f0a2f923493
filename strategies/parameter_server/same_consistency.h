#pragma once

#include <string>

#include "strategies/parameter_server/consistency.h"

namespace cohort::parameter_server::proto {
class Consistency;
}  // namespace cohort::parameter_server::proto

namespace cohort::parameter_server {

void write_consistency(const ConsistencyOptions& consistency, proto::Consistency* out);

// kFailedPrecondition where a server with `present` does not train as its caller `task` expects,
// with both values of what differs.
void require_same(const ConsistencyOptions& present, const proto::Consistency& expected,
                  const std::string& task);

}  // namespace cohort::parameter_server
