#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "strategies/cluster/cluster_spec.h"

// Configuration written in JSON; the errors are kInvalidArgument and name paths such as
// TF_CONFIG.cluster.worker[1].
namespace cohort::config {

using Json = nlohmann::json;

// An object. Refuses texts beyond 1 MiB, nesting beyond 8 levels and keys that stand twice; of a
// text that is no JSON it tells line and column. `name` is what the text is, such as TF_CONFIG.
Json parse_object(std::string_view text, const std::string& name);

// The path of an element: path.key, or path["key"] for a key with other than plain letters.
std::string path_of(const std::string& path, const std::string& key);

// What an element is, for errors: "x" in quotes, a number, "a list of 3", "an object", ...
std::string found(const Json& element);

// The tasks that an object of jobs names.
std::vector<ClusterSpec::Task> parse_tasks(const Json& jobs, const std::string& path);

}  // namespace cohort::config
