#pragma once

#include <cstddef>
#include <string>

#include "core/base/error.h"
#include "strategies/parameter_server/snapshot.h"

namespace cohort::testing {

// How many shards are in the snapshot in `folder`, while a server may take further ones: none where
// there is none yet, or the next one has just taken its place.
inline size_t saved_shards(const std::string& folder) {
  try {
    return parameter_server::read_snapshot(folder).size();
  } catch (const Error&) {
    return 0;
  }
}

}  // namespace cohort::testing
