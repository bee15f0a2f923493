#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "core/graph/graph_function.h"

namespace cohort {

// A traced function as bytes (proto/graph.proto), for a file or another process
// (docs/functions.md). Variables travel as names and specs. kResourceExhausted when it is larger
// than protobuf allows (2 GiB).
std::string serialize_function(const GraphFunction& function);

// A number for what a traced function computes, the same for the same program in every process, and
// another, as good as always, where anything differs but the names of nodes: an op, an attribute, a
// constant, a variable's name.
uint64_t fingerprint(const GraphFunction& function);

// Finds the variable of a name; returns null or throws when there is none.
using ResourceResolver = std::function<std::shared_ptr<Resource>(const std::string& name)>;

// The inverse. The bytes may be hostile: every field is checked, every node has only attributes
// that its op lists, and passes through shape inference again. kDataLoss when they are no function,
// or have changed since they were written; kNotFound for a variable that `resolve` does not have;
// kInvalidArgument that names the node for anything else that does not fit, and for an empty
// `resolve` where there are variables.
GraphFunction import_function(std::string_view bytes, const ResourceResolver& resolve);

}  // namespace cohort
