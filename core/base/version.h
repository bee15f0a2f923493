#pragma once

#include <string_view>

// The version of Cohort of which these headers are, and its numbers for the preprocessor.
// `version.bzl` has it too, for what no compiler reads; a test compares.
#define COHORT_VERSION "0.1.0"
#define COHORT_VERSION_MAJOR 0
#define COHORT_VERSION_MINOR 1
#define COHORT_VERSION_PATCH 0

namespace cohort {

// The version of the library that is linked, where COHORT_VERSION is that of the headers that the
// program was compiled with: a program has to be built anew where they differ, and also for another
// library of the same version.
std::string_view library_version();

}  // namespace cohort
