#include "core/device/simulated/simulated_gpus.h"

#include <vector>

#include <gtest/gtest.h>

#include "core/device/timed_stream.h"

// The simulation keeps what it promises, so that a test which passes on it means something.
namespace cohort {
namespace {

constexpr Device kGpu{DeviceType::kGpu, 1};
constexpr size_t kLimit = 4096;

class SimulatedGpus : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { simulated::use_simulated_gpus(2, kLimit); }

  DeviceBackend& backend_ = device_backend(DeviceType::kGpu);
  std::unique_ptr<Stream> stream_ = backend_.make_stream(kGpu);
  std::shared_ptr<Buffer> memory_ = backend_.allocate(kGpu, sizeof(int), "the test");
  int* device_value() const { return static_cast<int*>(memory_->data); }
  int read() const {
    int value = 0;
    backend_.copy_to_host(kGpu, memory_->data, &value, sizeof(value));
    return value;
  }
};

TEST_F(SimulatedGpus, AreDevicesOfTheProcess) {
  EXPECT_EQ(list_devices().back(), kGpu);
  EXPECT_EQ(missing_gpu_reason(), "");
}

TEST_F(SimulatedGpus, DoNothingBeforeTheStreamIsSynchronised) {
  int value = 7;
  stream_->copy_from_host(&value, memory_->data, sizeof(value));
  value = 8;  // the copy reads it only now
  stream_->synchronize();
  EXPECT_EQ(read(), 8);
}

TEST_F(SimulatedGpus, DoARecordingAgainWithTheSameAddresses) {
  const int zero = 0;
  backend_.copy_from_host(kGpu, &zero, memory_->data, sizeof(zero));
  stream_->begin_recording();
  simulated::submit(*stream_, [value = device_value()] { ++*value; });
  const auto recording = stream_->end_recording();
  stream_->synchronize();
  EXPECT_EQ(read(), 0) << "recording does nothing";
  for (int i = 0; i < 3; ++i) stream_->replay(*recording);
  stream_->synchronize();
  EXPECT_EQ(read(), 3);
}

TEST_F(SimulatedGpus, RefuseARecordingDuringWhichStreamsAreWaitedFor) {
  simulated::wait_for_streams();
  stream_->begin_recording();
  stream_->end_recording();
  stream_->begin_recording();
  simulated::wait_for_streams();
  EXPECT_THROW(stream_->end_recording(), Error);
}

TEST_F(SimulatedGpus, TakeTimesWhenTheyComeToAMark) {
  auto* stream = dynamic_cast<TimedStream*>(stream_.get());
  ASSERT_NE(stream, nullptr);
  const auto first = stream->make_mark(), second = stream->make_mark();
  auto begin = std::chrono::steady_clock::time_point(), end = begin;
  first->put();
  simulated::submit(*stream, [&] { begin = std::chrono::steady_clock::now(); });
  simulated::submit(*stream, [&] { end = std::chrono::steady_clock::now(); });
  second->put();
  stream->make_mark()->put();  // and ends before the stream comes to it
  stream->synchronize();
  EXPECT_GE(second->since(*first), end - begin);
  EXPECT_EQ(first->since(*second), -second->since(*first));
}

TEST_F(SimulatedGpus, RefuseMemoryBeyondTheirLimit) {
  try {
    backend_.allocate(kGpu, kLimit, "variable \"w\"");
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kResourceExhausted);
    EXPECT_NE(error.message().find("variable \"w\" needs 4.00 KiB on gpu:1"), std::string::npos)
        << error.what();
  }
}

TEST_F(SimulatedGpus, MemoryIsOutOfTheHostsReach) { EXPECT_DEATH(*device_value() = 1, ""); }

}  // namespace
}  // namespace cohort
