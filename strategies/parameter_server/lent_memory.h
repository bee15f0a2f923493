#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "core/tensor/tensor.h"
#include "strategies/collective/host/process_identity.h"
#include "strategies/collective/host/shared_region.h"
#include "strategies/parameter_server/frame_socket.h"

// Memory of one process that another one reads where it is: only what allocate_shared_buffer()
// gave, of which the other is told region by region.
namespace cohort::parameter_server {

// Less is copied: it takes no longer.
inline constexpr size_t kLentBytes = 64 << 10;

// Memory for what will be sent; null where it would be copied in any case, or there is none.
std::shared_ptr<Buffer> memory_to_lend(size_t bytes);

// The regions that an owner has told the other side of. One thread at a time.
class LentRegions {
 public:
  struct Place {
    uint32_t region = 0;
    uint64_t offset = 0;
  };
  // Where the other side finds some memory; nothing where it cannot. `tell` is given what it must
  // hear before.
  std::optional<Place> locate(const void* memory, size_t bytes,
                              const std::function<void(const Frame&)>& tell);

 private:
  void withdraw(const std::function<void(const Frame&)>& tell);

  std::map<uint64_t, uint32_t> known_;  // by the registry's number
  uint32_t last_ = 0;
  uint64_t released_seen_ = 0;
};

// What the other side of a connection lends. One thread at a time.
class BorrowedRegions {
 public:
  BorrowedRegions();
  // Maps a region, or lets go of it, as a frame says. kInvalidArgument for too many, and the errors
  // of SharedRegion::open.
  void change(const Frame& frame, const ProcessIdentity& owner);
  // Memory in one of them, which stays for as long as it is held. kInvalidArgument.
  std::shared_ptr<Buffer> at(const Frame& frame);
  // Waits until nobody holds any.
  void wait_until_returned();

 private:
  struct Held;
  std::map<uint32_t, std::shared_ptr<SharedRegion>> regions_;
  const std::shared_ptr<Held> held_;
};

// Memory that another process may still read: it is kept until `reads_no_more()`, or that process
// has ended, which is looked at whenever more is kept.
void keep_lent(const ProcessIdentity& reader, std::function<bool()> reads_no_more,
               std::vector<std::shared_ptr<const void>> memory);

}  // namespace cohort::parameter_server
