#pragma once

#include <functional>
#include <optional>

#include "core/base/error.h"

namespace cohort {

// Calls `write`. The Error by which the system has refused to, as core/base/file.h says: there is
// no room, no permission, no such folder any more, or the disk is at fault. The same may succeed
// later. Whatever else `write` throws, this throws.
std::optional<Error> try_write(const std::function<void()>& write);

}  // namespace cohort
