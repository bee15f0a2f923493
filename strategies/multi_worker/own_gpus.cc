#include "strategies/multi_worker/own_gpus.h"

#include <algorithm>
#include <optional>
#include <string>

#include "strategies/cluster/gpu_list.h"
#include "strategies/cluster/parsing.h"

namespace cohort {
namespace {

constexpr const char* kVisible = "CUDA_VISIBLE_DEVICES";

// A task's place among those of its host.
struct LocalPlace {
  int rank = 0, size = 1;
};

LocalPlace local_place(const World& world, const Environment& environment) {
  if (world.local_rank && world.local_size) return {*world.local_rank, *world.local_size};
  // Launchers that tell addresses may tell these besides.
  const auto size = config::optional_integer(environment, "LOCAL_WORLD_SIZE",
                                             {.min = 1, .max = config::kMaxTasks}, "2");
  if (!size) return {};
  const auto rank =
      config::optional_integer(environment, "LOCAL_RANK", {.min = 0, .max = *size - 1}, "0");
  return rank ? LocalPlace{*rank, *size} : LocalPlace{};
}

std::vector<Device> gpus_from(int first, int count) {
  std::vector<Device> gpus;
  for (int i = first; i < first + count; ++i) gpus.push_back({DeviceType::kGpu, i});
  return gpus;
}

std::vector<Device> share_of(const LocalPlace& place, int count) {
  if (count < place.size) return gpus_from(place.rank * count / place.size, 1);
  const int share = count / place.size;
  return gpus_from(place.rank * share, share);
}

// The GPU that the process numbers after CUDA_VISIBLE_DEVICES and the launcher by its id there.
Device gpu_of(const std::string& id, const std::optional<std::string>& visible, int count) {
  if (visible) {
    const auto listed = config::listed_gpus(*visible);
    const auto at = std::find(listed.begin(), listed.end(), id);
    if (at == listed.end() || at - listed.begin() >= count)
      config::refuse("the GPU of this task", quote(id),
                     str("one of the ", count, " of ", kVisible, "=", quote(*visible)),
                     str(kVisible, "=0,1"));
    return {DeviceType::kGpu, static_cast<int>(at - listed.begin())};
  }
  return {DeviceType::kGpu,
          static_cast<int>(config::parse_integer(
              id, "the GPU of this task", {.min = 0, .max = count - 1}, str(kVisible, "=0,1")))};
}

}  // namespace

std::vector<Device> own_gpus(const ClusterResolver& resolver, int count,
                             const Environment& environment) {
  if (count == 0) return {};
  if (!resolver.gpus()) return share_of(local_place(resolver.world(), environment), count);
  const auto visible = environment(kVisible);
  std::vector<Device> gpus;
  for (const std::string& id : *resolver.gpus()) gpus.push_back(gpu_of(id, visible, count));
  return gpus;
}

}  // namespace cohort
