#pragma once

#include <string>

#include "core/base/error.h"

namespace cohort {

// Whether a function has failed because its worker's pass over a dataset had no batch left. Other
// errors are kOutOfRange, too, such as that of a label which is no class.
bool is_end_of_data(const Error& error);

namespace coordinator {

// That error, of a pass over `dataset` on `worker`.
Error end_of_data(const std::string& dataset, const std::string& worker);

}  // namespace coordinator
}  // namespace cohort
