#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "core/distribute/workers.h"
#include "core/tensor/tensor.h"
#include "strategies/collective/host/shared_region.h"

namespace cohort {

// One memory for a variable of all workers of a host. Functions that they run together use
// `common`. What one worker writes outside of these, as assign() does, it alone sees, in `own`,
// until all meet before their next step (CommonWrites): the others may still be reading what the
// step before has left.
class CommonMemory {
 public:
  // Begins with the chief's `value`. Every worker calls it. Null, on all, where one of them cannot
  // map the memory of the chief, or there is none.
  static std::shared_ptr<CommonMemory> make(Workers& workers, const std::string& topic,
                                            const Tensor& value);

  void* common() const { return region_.data(); }
  void* own() const { return region_.own(); }
  // Before this worker writes `own`, which it only reads otherwise. Errors are those of
  // SharedRegion::begin_write_own.
  void begin_write() { region_.begin_write_own(); }
  // Copies what this worker has written on its own to what all see.
  void publish();
  // From here on this worker sees what all see.
  void forget_own() { region_.forget_own(); }

 private:
  CommonMemory(SharedRegion region, size_t bytes) : region_(std::move(region)), bytes_(bytes) {}

  SharedRegion region_;
  const size_t bytes_;
};

// Which of the memories that the workers have in common this one has written on its own.
// Thread-safe.
class CommonWrites {
 public:
  // Its number: of the same memory the same on all workers, who make them in the same order.
  size_t add(const std::shared_ptr<CommonMemory>& memory);
  void note(size_t number);
  bool any() const;
  // Makes of what workers have written on their own what all see: where several have written one
  // memory, that of the lowest rank. Every worker calls it, and none reads or writes meanwhile.
  void publish(Workers& workers);

 private:
  // The numbers of what is written, and still there.
  std::set<size_t> take_written();
  std::shared_ptr<CommonMemory> find(size_t number) const;

  mutable std::mutex mutex_;  // guards what follows
  std::vector<std::weak_ptr<CommonMemory>> all_;
  std::set<size_t> written_;
};

}  // namespace cohort
