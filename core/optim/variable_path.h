#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace cohort::optim {

// Whether `entry` names a variable, or a layer that it is in, by one or more parts of its path, as
// they are or without the numbers that siblings are given: "dense_1/bias" is named by "bias",
// "dense_1", "dense" and "dense/bias".
bool is_named_by(std::string_view path, std::string_view entry);
// Whether one of `entries` does.
bool is_named_by(std::string_view path, const std::vector<std::string>& entries);

}  // namespace cohort::optim
