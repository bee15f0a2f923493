#pragma once

#include <chrono>
#include <memory>

#include "core/device/device.h"

namespace cohort {

// A place in the work of one stream, of which the device notes when it comes there. It may end
// before that, and ends before its stream. One thread at a time.
class StreamMark {
 public:
  virtual ~StreamMark() = default;
  // Puts it behind what the stream has been handed so far; again moves it. Not into a recording.
  virtual void put() = 0;
  // How much later than at `earlier`, which may be of another stream of the same device, the device
  // was here; negative where it was here first. Both streams have been synchronised since.
  virtual std::chrono::nanoseconds since(const StreamMark& earlier) const = 0;
};

// A stream whose device takes times, as all streams of GPUs are.
class TimedStream : public Stream {
 public:
  virtual std::unique_ptr<StreamMark> make_mark() = 0;
};

}  // namespace cohort
