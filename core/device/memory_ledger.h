#pragma once

#include <cstddef>
#include <map>
#include <mutex>
#include <string>
#include <string_view>

#include "core/base/error.h"

namespace cohort {

// Who holds how much of a device's memory, under a limit. Thread-safe.
class MemoryLedger {
 public:
  // `limit` in bytes; 0 is none. `device` is for messages: "gpu:0".
  MemoryLedger(std::string device, size_t limit);

  // Enters `bytes` for `purpose` before they are allocated. kResourceExhausted where they are
  // beyond the limit, which names the purpose, the limit and the largest holders.
  void take(size_t bytes, std::string_view purpose);
  void give_back(size_t bytes, std::string_view purpose);
  // The error of memory that the device refused, although it is within the limit.
  Error refused(size_t bytes, std::string_view purpose, size_t free_on_card) const;

  size_t used() const;
  size_t peak() const;

 private:
  std::string holders() const;  // with the mutex held

  const std::string device_;
  const size_t limit_;
  mutable std::mutex mutex_;
  size_t used_ = 0, peak_ = 0;
  std::map<std::string, size_t, std::less<>> by_purpose_;
};

// "1.50 GiB", "512 bytes".
std::string format_bytes(size_t bytes);

}  // namespace cohort
