#include "core/base/cores.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <climits>
#include <cstdint>
#include <fstream>
#include <omp.h>
#include <sched.h>
#include <string_view>
#include <thread>
#include <unistd.h>
#include <vector>

#include "core/base/control_groups.h"

namespace cohort {
namespace {

constexpr size_t kLongestLine = 100;  // two numbers

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::array<char, kLongestLine> line{};
  file.getline(line.data(), line.size());
  return line.data();
}

std::optional<int64_t> positive(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool is_whole = error == std::errc() && end == text.data() + text.size();
  return is_whole && value > 0 ? std::optional(value) : std::nullopt;
}

// What a quota of time in each period is, both in microseconds; nothing where there is none ("max",
// "-1").
std::optional<int> cores_of(std::string_view quota_text, std::string_view period_text) {
  const auto quota = positive(quota_text), period = positive(period_text);
  if (!quota || !period) return std::nullopt;
  const int64_t cores = *quota / *period + (*quota % *period != 0);
  return static_cast<int>(std::min<int64_t>(cores, INT_MAX));
}

std::optional<int> version_2(const std::string& group) {
  const std::string line = first_line(group + "/cpu.max");
  const size_t space = std::min(line.find(' '), line.size());
  return cores_of(std::string_view(line).substr(0, space),
                  std::string_view(line).substr(std::min(space + 1, line.size())));
}

std::optional<int> version_1(const std::string& group) {
  return cores_of(first_line(group + "/cpu.cfs_quota_us"),
                  first_line(group + "/cpu.cfs_period_us"));
}

// Nothing where OpenMP does not pin threads.
std::optional<cpu_set_t> cores_of_places() {
  const int places = omp_get_num_places();
  if (places == 0) return std::nullopt;
  cpu_set_t set;
  CPU_ZERO(&set);
  for (int place = 0; place < places; ++place) {
    std::vector<int> cores(static_cast<size_t>(omp_get_place_num_procs(place)));
    omp_get_place_proc_ids(place, cores.data());
    for (const int core : cores) CPU_SET(static_cast<size_t>(core), &set);
  }
  return set;
}

// Nothing where there are more than a cpu_set_t names.
std::optional<cpu_set_t> cores_of_affinity() {
  if (const auto places = cores_of_places()) return places;
  cpu_set_t set;
  return sched_getaffinity(0, sizeof(set), &set) == 0 ? std::optional(set) : std::nullopt;
}

}  // namespace

std::optional<int> cores_of_control_groups(const std::string& root) {
  std::optional<int> least;
  for (const std::string& group : control_groups("cpu", root)) {
    for (const auto cores : {version_2(group), version_1(group)})
      if (cores) least = std::min(*cores, least.value_or(INT_MAX));
  }
  return least;
}

int available_cores() {
  const auto set = cores_of_affinity();
  const int cores = set ? CPU_COUNT(&*set)
                        : static_cast<int>(std::thread::hardware_concurrency());  // a large machine
  return std::max(1, std::min(cores, cores_of_control_groups().value_or(INT_MAX)));
}

bool may_use_every_core() {
  const auto set = cores_of_affinity();
  return !set || CPU_COUNT(&*set) >= sysconf(_SC_NPROCESSORS_ONLN);
}

void use_all_cores() {
  if (const auto places = cores_of_places()) sched_setaffinity(0, sizeof(*places), &*places);
}

}  // namespace cohort
