#pragma once

#include <memory>

#include "core/collective/call.h"
#include "core/device/device.h"

namespace cohort {

// Collectives of one rank on the memory of its device, which go on behind the host's back, as
// NCCL's do. A communicator may have them beside those of host memory (Communicator::on_device);
// the same ranks make the same calls in the same order. One thread at a time, but for `abort`.
class DeviceCollectives {
 public:
  // Returns when the device uses the memory of no call any more.
  virtual ~DeviceCollectives() = default;

  // Whether a call of this kind, dtype and op is done there. Others go through host memory.
  virtual bool can_run(const Call& call) const = 0;
  // Memory of the device that collectives work on without copies of their own: all ranks have what
  // they reduce together in such memory, or none has. It outlives these collectives if need be, and
  // is given back at their next call, or their end, after its user has let go of it. Null where
  // there is no such memory, which is so on all ranks. kResourceExhausted, as
  // DeviceBackend::allocate.
  virtual std::shared_ptr<Buffer> allocate(size_t /*bytes*/) { return nullptr; }
  // Starts `call`, whose memory is the device's, behind what `stream` has been handed so far.
  // `token` names the operation: an address that no other operation under way has.
  virtual void start(const Call& call, Stream& stream, const void* token) = 0;
  // What `stream` is handed from now on comes behind the operation; no matter where there is none.
  virtual void wait(const void* token, Stream& stream) = 0;
  // The stream of its own that operations go on; null where they go on the caller's.
  virtual Stream* stream() { return nullptr; }
  // Throws what went wrong with anything started so far. To be asked when the stream has been
  // synchronised, and before results are used: they are undefined then.
  virtual void check() = 0;
  // Ends what is under way; it and everything later fails with `error`. The first one given wins.
  // From any thread.
  virtual void abort(const Error& error) = 0;
};

}  // namespace cohort
