#include "core/runtime/device_times.h"

#include <algorithm>

#include "core/base/error.h"
#include "core/graph/op.h"

namespace cohort {
namespace {

std::unique_ptr<StreamMark> make_mark(Stream& stream) {
  auto* timed = dynamic_cast<TimedStream*>(&stream);
  COHORT_CHECK(timed != nullptr);
  return timed->make_mark();
}

// What an AllReduceStart sends: all results but the last, which identifies the operation.
size_t bucket_bytes(const Node& start) {
  size_t bytes = 0;
  for (size_t i = 0; i + 1 < start.outputs().size(); ++i) bytes += start.outputs()[i].bytes();
  return bytes;
}

}  // namespace

DeviceTimes::Marks::Marks(Stream& stream) : begin(make_mark(stream)), end(make_mark(stream)) {}

// The second time it waits so that the device comes to the mark now.
DeviceTimes::DeviceTimes(Stream& computation, Stream* communication)
    : computation_(computation), communication_(communication), zero_(make_mark(computation)) {
  computation_.synchronize();
  zero_time_ = Profiler::Clock::now();
  zero_->put();
  computation_.synchronize();
}

// Marks are made beforehand: what that takes is none of the kernel's time.
void DeviceTimes::start(const Node& node) {
  TimedKernel& kernel =
      kernels_.emplace_back(TimedKernel{&node, Marks(computation_), std::nullopt});
  if (communication_ != nullptr && node.op().name == "AllReduceStart") {
    kernel.communication.emplace(*communication_);
    kernel.communication->begin->put();
  }
  kernel.computation.begin->put();
}

void DeviceTimes::stop() {
  const TimedKernel& kernel = kernels_.back();
  kernel.computation.end->put();
  if (kernel.communication) kernel.communication->end->put();
}

void DeviceTimes::tell(int replica) const {
  if (communication_ != nullptr) communication_->synchronize();
  const std::string device = str(computation_.device()), computation = device + " computation",
                    communication = device + " communication";
  for (const TimedKernel& kernel : kernels_) {
    const auto begin = zero_time_ + kernel.computation.begin->since(*zero_);
    Profiler::record(kernel.node->name(), kernel.node->op().name, replica, begin,
                     begin + kernel.computation.end->since(*kernel.computation.begin), computation);
    if (!kernel.communication) continue;
    // It begins when both streams have come to it. One that was not started takes no time.
    const auto free = zero_time_ + kernel.communication->begin->since(*zero_),
               end = zero_time_ + kernel.communication->end->since(*zero_);
    if (std::max(begin, free) < end)
      Profiler::record(str("AllReduce of ", bucket_bytes(*kernel.node), " bytes"),
                       Profiler::kCommunication, replica, std::max(begin, free), end,
                       communication);
  }
}

}  // namespace cohort
