#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/graph/graph_function.h"
#include "core/optim/update_rule.h"
#include "core/runtime/plan.h"
#include "core/runtime/variable.h"

namespace cohort {

// What a server does with a gradient: functions, traced and serialised by a worker, of a gradient,
// the learning rate and the number of the update from 1 (both float64 scalars), that change the
// variable "value" and one for each slot.
struct ServerUpdate {
  std::vector<optim::UpdateRule::Slot> slots;
  std::string dense;  // for a gradient of the whole shard; empty: it is not trained
  // For the gradient of `row_block` rows, where the rule leaves other rows as they are; else empty.
  std::string by_rows;
  int64_t row_block = 0;
};

// Traces `rule` for a shard. `decay` is that of OptimizerOptions, 0 for a variable that is left out
// of it: it moves all rows, so that there is no update by rows then. A rule that looks at a whole
// variable (Lamb) sees the shard alone.
ServerUpdate trace_update(const optim::UpdateRule& rule, const TensorSpec& shard, double decay = 0);

namespace parameter_server {

// The variables that an update may change, by name: "value" and the slots.
using Parts = std::map<std::string, std::shared_ptr<Variable>, std::less<>>;
inline constexpr std::string_view kValuePart = "value";

// Compiles such a function for so many threads; what an optimizer does gives the same bits with any
// number. The bytes may be hostile: beyond import_function's errors, kInvalidArgument for other
// inputs than those above, and for ops that have other effects than on `parts`, may fail while they
// run, or take much more memory than the parts.
std::unique_ptr<Plan> compile_update(std::string_view bytes, const Parts& parts, int threads = 1);

// Whether an update adds the gradient to the value, and does nothing else: then each counts by
// itself, whatever others come. The bytes may be hostile: as import_function.
bool only_adds(const ServerUpdate& update, const TensorSpec& shard);

// Whether two such functions, of which either may be empty, compute the same, whatever their nodes
// are called; `part` is the spec of each variable. The bytes may be hostile: as import_function.
bool same_update(std::string_view a, std::string_view b, const TensorSpec& part);

}  // namespace parameter_server
}  // namespace cohort
