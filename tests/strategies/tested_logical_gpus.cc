#include <vector>

#include "tests/strategies/tested_devices.h"

namespace cohort {

DeviceType tested_devices() { return DeviceType::kGpu; }

int most_tested_replicas() { return 2; }

// Once: a card is not divided again. Without a card the tests are skipped.
void make_tested_devices(int count) {
  [[maybe_unused]] static const bool kMade = [count] {
    if (missing_gpu_reason().empty())
      set_logical_gpus(std::vector<LogicalGpu>(static_cast<size_t>(count), LogicalGpu{.card = 0}));
    return true;
  }();
}

}  // namespace cohort
