#pragma once

#include <optional>
#include <string>

#include "strategies/cluster/cluster_resolver.h"

namespace cohort {

struct LiteralResolverOptions {
  // Which task this is; where they are left out, that is not known.
  std::string task_type = {};
  std::optional<int> task_id = {};
  std::string rpc_layer = "grpc";
  std::string environment = {};
};

// A cluster that the program names itself. By default an empty one: a program on its own.
class LiteralResolver : public ClusterResolver {
 public:
  explicit LiteralResolver(ClusterSpec spec = {}, LiteralResolverOptions options = {});
};

}  // namespace cohort
