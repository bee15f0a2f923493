#pragma once

#include <cstdint>
#include <string>

namespace cohort::coordination {

// From the system's source of randomness.
uint64_t random_incarnation();
// 128 bits as 32 hexadecimal digits.
std::string random_job_id();

}  // namespace cohort::coordination
