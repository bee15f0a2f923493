#pragma once

#include <map>
#include <set>

#include "core/device/device.h"
#include "core/runtime/plan.h"
#include "core/runtime/variable.h"

namespace cohort {

// The memory of the variables that a plan on one device reads and writes: their own where the
// device reaches it, else a copy, which is brought up to date before each run and, where the plan
// writes it, brought back afterwards. Where replicas share a variable they pass Barriers before and
// after it is written: what the one has written goes back before the second, and the others have it
// behind that.
class VariableMemory {
 public:
  using Variables = std::set<const Resource*>;

  explicit VariableMemory(const PlanOptions& options)
      : device_(options.device), local_replica_(options.local_replica), outside_(options.outside) {}

  // Stable.
  void* of(Resource* resource);
  bool has_copies() const { return has_copies_; }
  // Before and after each run of a plan that writes `written`: where no strategy runs it, tells the
  // variables (Variable::begin_read_outside and so on).
  void begin_run(const Variables& written);
  void end_run(const Variables& written);
  // Brings all copies up to date.
  void load();
  // Brings back the copies of `written`.
  void store(const Variables& written);
  // Brings those of `read` up to date that other replicas write.
  void refresh(const Variables& read);

 private:
  struct Entry {
    Variable* variable = nullptr;
    Tensor storage;  // the variable's, on its home
    Device home;
    Tensor copy;  // undefined where `storage` is in reach
    bool is_written_by_others = false;

    bool is_in_reach() const { return !copy.defined(); }
  };
  // Calls `work` with the entry of each of `variables` that the plan uses.
  template <typename F>
  void for_each(const Variables& variables, const F& work);
  void load(Entry& entry);

  const Device device_;
  const int local_replica_;
  const bool outside_;
  bool has_copies_ = false;
  std::map<const Resource*, Entry> entries_;
};

// Whether the host reads and writes the memory of `device` as its own.
bool is_host(Device device);
// Copies between the memories of two devices, complete on return.
void copy_between_devices(Device from, const void* source, Device to, void* target, size_t bytes);

}  // namespace cohort
