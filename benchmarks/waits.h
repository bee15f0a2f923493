#pragma once

#include <algorithm>
#include <array>

#include "cohort.h"

namespace cohort::benchmarks {

// Whether a kernel does nothing but wait for other replicas or their data. Those that share
// variables wait for what has been started at the Barrier before they write.
inline bool waits_for_others(const Profiler::Event& event) {
  constexpr std::array kKinds = {"AllReduceWait", "AllReduce", "AllGather", "Barrier"};
  return std::find(kKinds.begin(), kKinds.end(), event.kind) != kKinds.end();
}

}  // namespace cohort::benchmarks
