#pragma once

#include <optional>
#include <string>

#include "strategies/cluster/cluster_resolver.h"
#include "strategies/cluster/environment.h"

namespace cohort {

// What is given here wins over TF_CONFIG, field by field.
struct TFConfigResolverOptions {
  std::optional<std::string> task_type = {};
  std::optional<int> task_id = {};
  std::optional<std::string> rpc_layer = {};
  std::optional<std::string> environment = {};
};

// The variable TF_CONFIG, as TensorFlow, TFJob on Kubernetes and cloud services set it:
//
//   {"cluster": {"chief": ["a:2222"], "worker": ["b:2222", "c:2222"]},
//    "task": {"type": "worker", "index": 1},
//    "rpc_layer": "grpc", "environment": "cloud"}
//
// All keys are optional. A job is a list of addresses or an object from task number to address; an
// index may be a number or a text. TFJob names a cluster whose workers come and go "sparseCluster";
// of its workers it tells each one its own address. Without the variable, or without a cluster, the
// program is on its own; keys that are not known are then refused, and otherwise ignored.
class TFConfigResolver : public ClusterResolver {
 public:
  explicit TFConfigResolver(const TFConfigResolverOptions& options = {},
                            const Environment& environment = process_environment);
};

}  // namespace cohort
