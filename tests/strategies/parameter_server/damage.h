#pragma once

#include <string>

#include "core/base/file.h"

namespace cohort::testing {

// Flips a bit in the middle of a file.
inline void damage(const std::string& path) {
  std::string bytes = read_file(path);
  bytes[bytes.size() / 2] ^= 1;
  write_file_atomically(path, bytes);
}

}  // namespace cohort::testing
