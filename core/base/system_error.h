#pragma once

#include <string>
#include <string_view>

#include "core/base/error.h"

namespace cohort {

// The code of `number`, which a call to the system has set errno to: kNotFound, kPermissionDenied,
// kResourceExhausted (disk, memory, descriptors, processes, a port that is taken),
// kInvalidArgument (a directory where there should be a file, a name that is too long) or kUnknown.
Code code_of_errno(int number);

// Whether flock() has set errno to `number` because the file system has no locks.
bool has_no_locks(int number);

// Throws that `action` ("open") has failed on `path`, and why, which is in errno.
[[noreturn]] void fail_errno(std::string_view action, const std::string& path);

}  // namespace cohort
