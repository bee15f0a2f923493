#pragma once

#include <map>

#include "core/device/device.h"
#include "core/runtime/variable.h"

namespace cohort {

// The memory of the variables that a plan on one device reads and writes: their own where the
// device reaches it, else a copy, which is brought up to date before each run and, where the plan
// writes it, brought back afterwards.
class VariableMemory {
 public:
  VariableMemory(Device device, int local_replica)
      : device_(device), local_replica_(local_replica) {}

  // Stable. `written`: the plan writes it.
  void* of(Resource* resource, bool written);
  void load() {
    if (has_copies_) copy_all(true);
  }
  void store() {
    if (has_copies_) copy_all(false);
  }

 private:
  struct Entry {
    Tensor storage;  // the variable's, on its home
    Device home;
    Tensor copy;  // undefined where `storage` is in reach
    bool written = false;
  };
  void copy_all(bool load);

  const Device device_;
  const int local_replica_;
  bool has_copies_ = false;
  std::map<const Resource*, Entry> entries_;
};

// Copies between the memories of two devices, complete on return.
void copy_between_devices(Device from, const void* source, Device to, void* target, size_t bytes);

}  // namespace cohort
