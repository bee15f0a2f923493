#include "core/device/logical_cpus.h"

#include <algorithm>
#include <cstdlib>
#include <mutex>
#include <omp.h>

#include "core/base/cores.h"
#include "core/device/device.h"

namespace cohort {
namespace {

constexpr int kMaxLogicalCpus = 4096;  // a replica on each takes a thread

// Cores this process may use, lowered by OMP_NUM_THREADS where set.
int usable_cores() {
  int cores = available_cores();
  if (const char* text = std::getenv("OMP_NUM_THREADS")) {
    const int asked = std::atoi(text);
    if (asked > 0) cores = std::min(cores, asked);
  }
  cores = std::min(cores, omp_get_thread_limit());
  return std::max(cores, 1);
}

std::mutex mutex;

LogicalCpus& state() {
  static LogicalCpus cpus{1, usable_cores()};
  return cpus;
}

}  // namespace

LogicalCpus logical_cpus() {
  const std::lock_guard lock(mutex);
  return state();
}

void set_logical_cpus(int count, int threads_each) {
  if (count < 1 || count > kMaxLogicalCpus)
    invalid("there can be 1 to ", kMaxLogicalCpus, " logical cpus, got ", count);
  if (threads_each < 0)
    invalid("threads for each logical cpu must not be negative, got ", threads_each);
  const std::lock_guard lock(mutex);
  const int threads = threads_each > 0 ? threads_each : std::max(usable_cores() / count, 1);
  state() = {count, std::min(threads, omp_get_thread_limit())};
}

}  // namespace cohort
