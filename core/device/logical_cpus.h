#pragma once

namespace cohort {

// How the host's processor is split into logical devices.
struct LogicalCpus {
  int count = 1;
  int threads_each = 1;
};

// A snapshot of the current split; thread-safe.
LogicalCpus logical_cpus();

}  // namespace cohort
