#pragma once

#include <set>
#include <string>
#include <string_view>

#include "core/train/callback.h"

// Paths in which fields stand for values, by their names: {name}, or, to be formatted as by
// printf(), {name:02d} or {name:.3f}, with a type of d, f, e or g.
namespace cohort::callbacks {

// When a callback is made: kInvalidArgument, naming it, for braces of anything else.
void require_pattern(std::string_view callback, const std::string& pattern);

// Those of all fields.
std::set<std::string> names_in(const std::string& pattern);

// Whether one of them is that of a result of validation.
bool names_validation(const std::string& pattern);

// The path. kInvalidArgument, naming the callback, where `values` lack one.
std::string fill_pattern(std::string_view callback, const std::string& pattern, const Logs& values);

}  // namespace cohort::callbacks
