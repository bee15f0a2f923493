#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace cohort {

// The variables of the environment that Cohort reads, or sets for the tasks of cohort-run, in
// alphabetical order: COHORT_ALLOW_PLAINTEXT and so on. The pages in docs/ say what each means.
std::span<const std::string_view> settings();

// A warning, without a newline, for each of these names that begins with COHORT_ and is no setting:
// a misspelt one is as good as none. Not for those of Cohort's own scripts and tests.
std::vector<std::string> warnings_of_settings(const std::vector<std::string>& names);

// Prints the warnings of this process's environment, once in this process.
void warn_of_unknown_settings();

}  // namespace cohort
