#include "strategies/cluster/coordination/random_ids.h"

#include <random>

#include "strategies/cluster/coordination/limits.h"

namespace cohort::coordination {

uint64_t random_incarnation() {
  std::random_device device;
  return static_cast<uint64_t>(device()) << 32 | device();
}

std::string random_job_id() { return in_hex(random_incarnation()) + in_hex(random_incarnation()); }

}  // namespace cohort::coordination
