#pragma once

#include <string>

namespace cohort {

// For an error of an allocation: the limit that this process has for its memory, as words behind
// the error, "; this process has a limit of 1048576 bytes of address space (ulimit -v)". "" where
// it has none: then the system itself has no more.
std::string memory_limit();

}  // namespace cohort
