#pragma once

#include "strategies/collective/nccl/device_library.h"

namespace cohort {

// Collectives of ranks that are threads of one process, and whose devices reach each other's memory
// as their own: logical GPUs of one card, which NCCL refuses. Each rank adds up its share of the
// elements of all ranks, in rank order, and writes the sums to all of them. So all have the same
// bits, and nothing goes through the host; but every rank waits at the start of a call until it is
// over. Calls that differ from rank to rank are an error on all of them.
//
// Of all-reduces, sums of floating numbers. One library is for one group: the ranks that join it.
class SharedCardLibrary final : public DeviceLibrary {
 public:
  class Meeting;

  explicit SharedCardLibrary(int ranks);

  std::string name() const override { return "ranks that share a card"; }
  std::string place_of(Device device) const override { return str(device); }
  std::string make_id() const override { return "-"; }  // nothing: the library knows the group
  size_t id_bytes() const override { return 1; }
  // The collectives do not need the library any more.
  std::unique_ptr<DeviceCollectives> join(const Membership& membership) override;

 private:
  const std::shared_ptr<Meeting> meeting_;
};

}  // namespace cohort
