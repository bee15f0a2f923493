#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "core/device/device.h"
#include "strategies/collective/nccl/device_group.h"

namespace cohort::testing {

// Ranks of this process with a library's collectives, one on each of the first GPUs, with a stream
// of it.
class DeviceRanks {
 public:
  // What a rank does, on a thread of its own.
  using Rank = std::function<void(int, DeviceCollectives&, Stream&)>;

  DeviceRanks(int size, DeviceLibrary& library, std::optional<std::chrono::milliseconds> limit) {
    std::vector<Device> devices;
    for (int r = 0; r < size; ++r) {
      devices.push_back({DeviceType::kGpu, r});
      streams_.push_back(device_backend(DeviceType::kGpu).make_stream(devices.back()));
    }
    DeviceGroup group =
        add_device_collectives(make_in_process_communicators(size),
                               {.library = &library, .devices = devices, .limit = limit});
    if (!group.missing.empty()) fail(Code::kUnavailable, group.missing);
    communicators_ = std::move(group.communicators);
  }
  ~DeviceRanks() { end_together(std::move(communicators_)); }
  DeviceRanks(const DeviceRanks&) = delete;
  DeviceRanks& operator=(const DeviceRanks&) = delete;

  int size() const { return static_cast<int>(streams_.size()); }
  Communicator& communicator(int rank) { return *communicators_[static_cast<size_t>(rank)]; }
  Stream& stream(int rank) { return *streams_[static_cast<size_t>(rank)]; }

  // Runs `rank` for each; what they throw, by rank, "" where that is nothing.
  std::vector<std::string> run(const Rank& rank) {
    std::vector<std::string> errors(streams_.size());
    std::vector<std::thread> threads;
    for (int r = 0; r < size(); ++r)
      threads.emplace_back([&, r] {
        try {
          rank(r, *communicator(r).on_device(), stream(r));
        } catch (const Error& error) {
          errors[static_cast<size_t>(r)] = error.what();
        }
      });
    for (std::thread& thread : threads) thread.join();
    return errors;
  }

 private:
  std::vector<std::unique_ptr<Stream>> streams_;
  std::vector<std::unique_ptr<Communicator>> communicators_;
};

// Makes a call and waits until its results can be read.
inline void run_call(DeviceCollectives& device, const Call& call, Stream& stream) {
  ASSERT_TRUE(device.can_run(call)) << describe(call);
  device.start(call, stream, &call);
  device.wait(&call, stream);
  stream.synchronize();
  device.check();
}

// Segments of so many elements, one behind the other at `source` and `target`.
inline std::vector<Segment> segments_at(char* source, char* target,
                                        const std::vector<int64_t>& counts, DType dtype) {
  std::vector<Segment> segments;
  for (const int64_t count : counts) {
    segments.push_back({source, target, count});
    source += count * static_cast<int64_t>(dtype_size(dtype));
    target += count * static_cast<int64_t>(dtype_size(dtype));
  }
  return segments;
}

}  // namespace cohort::testing
