#include "strategies/parameter_server/placement.h"

#include <algorithm>
#include <utility>

#include "core/base/error.h"

namespace cohort {

Placement::Placement(int num_servers) {
  if (num_servers < 1) invalid("variables need at least 1 parameter server, got ", num_servers);
  loads_.resize(static_cast<size_t>(num_servers));
}

void Placement::add(int server, ShardLoad load) {
  ShardLoad& present = loads_.at(static_cast<size_t>(server));
  for (ShardLoad* sum : {&present, &total_}) {
    sum->bytes += load.bytes;
    sum->traffic += load.traffic;
  }
}

int Placement::place(ShardLoad load) {
  const auto share = [](int64_t part, int64_t whole) {
    return whole > 0 ? static_cast<double>(part) / static_cast<double>(whole) : 0.0;
  };
  const auto score = [&](const ShardLoad& present) {
    const double memory = share(present.bytes + load.bytes, total_.bytes + load.bytes),
                 traffic = share(present.traffic + load.traffic, total_.traffic + load.traffic);
    return std::pair(std::max(memory, traffic), memory + traffic);
  };
  const auto best = std::ranges::min_element(loads_, {}, score) - loads_.begin();
  add(static_cast<int>(best), load);
  return static_cast<int>(best);
}

}  // namespace cohort
