#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <ostream>
#include <string>
#include <unistd.h>

namespace cohort::testing {

// What a process holds of its system.
struct Resources {
  int64_t descriptors = 0, threads = 0, resident_bytes = 0;
};

inline std::ostream& operator<<(std::ostream& out, const Resources& held) {
  return out << held.descriptors << " descriptors, " << held.threads << " threads, "
             << (held.resident_bytes >> 10) << " KiB";
}

// Of this process, or of the one with this id.
inline Resources resources_of(const std::string& process = "self") {
  const std::string folder = "/proc/" + process;
  const auto entries = [&](const char* name) {
    return std::distance(std::filesystem::directory_iterator(folder + "/" + name), {});
  };
  int64_t pages = 0;
  std::ifstream statm(folder + "/statm");
  statm >> pages >> pages;  // the second number
  return {entries("fd"), entries("task"), pages * sysconf(_SC_PAGESIZE)};
}

}  // namespace cohort::testing
