#pragma once

#include <string>

#include "core/base/crc32c.h"
#include "proto/graph.pb.h"

namespace cohort::testing {

// Of a serialised function that somebody has written so: with the check of what it is now.
inline std::string graph_bytes(proto::Graph graph) {
  graph.clear_check();
  graph.set_check(crc32c(graph.SerializeAsString()));
  return graph.SerializeAsString();
}

}  // namespace cohort::testing
