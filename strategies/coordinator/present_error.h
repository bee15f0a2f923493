#pragma once

#include "core/base/error.h"

namespace cohort::coordinator {

// What is being thrown, also by a user's function or dataset, which may be anything: what is no
// Error becomes what it does for the workers of every strategy (error_for_others). To be called
// while it is caught.
Error present_error();

}  // namespace cohort::coordinator
