#include "core/device/simulated/simulated_gpus.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <sys/mman.h>
#include <vector>

#include "core/device/backends.h"
#include "core/device/memory_ledger.h"
#include "core/device/timed_stream.h"

namespace cohort::simulated {
namespace {

using Work = std::function<void()>;

std::atomic<size_t> given_for_staging = 0;
std::atomic<bool> refuses_recordings = false;
std::atomic<int64_t> waits = 0;  // by wait_for_streams

// All device memory there is, readable and writable only inside `access`.
class DeviceMemory {
 public:
  static DeviceMemory& instance() {
    static auto* memory = new DeviceMemory;
    return *memory;
  }

  void* map(size_t bytes) {
    const std::lock_guard lock(mutex_);
    void* data = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    COHORT_CHECK(data != MAP_FAILED);
    blocks_[data] = bytes;
    return data;
  }
  void unmap(void* data) {
    const std::lock_guard lock(mutex_);
    munmap(data, blocks_.at(data));
    blocks_.erase(data);
  }
  void access(const Work& work) {
    const std::lock_guard lock(mutex_);
    protect(PROT_READ | PROT_WRITE);
    try {
      work();
    } catch (...) {
      protect(PROT_NONE);
      throw;
    }
    protect(PROT_NONE);
  }

 private:
  void protect(int protection) {
    for (const auto& [data, bytes] : blocks_) COHORT_CHECK(mprotect(data, bytes, protection) == 0);
  }

  std::mutex mutex_;
  std::map<void*, size_t> blocks_;
};

class RecordedWork final : public Recording {
 public:
  explicit RecordedWork(std::vector<Work> work) : work(std::move(work)) {}
  const std::vector<Work> work;
};

class SimulatedStream final : public TimedStream {
 public:
  explicit SimulatedStream(Device device) : device_(device) {}

  Device device() const override { return device_; }
  void copy_from_host(const void* source, void* target, size_t bytes) override {
    add_copy(source, target, bytes);
  }
  void copy_to_host(const void* source, void* target, size_t bytes) override {
    add_copy(source, target, bytes);
  }
  void copy_within_device(const void* source, void* target, size_t bytes) override {
    add_copy(source, target, bytes);
  }
  void add(Work work) { work_.push_back(std::move(work)); }

  void synchronize() override {
    COHORT_CHECK(!recording_);
    const std::vector<Work> work = std::move(work_);
    work_.clear();
    DeviceMemory::instance().access([&] {
      for (const Work& item : work) item();
    });
  }
  void begin_recording() override {
    COHORT_CHECK(!recording_);
    before_ = std::move(work_);
    work_.clear();
    waits_before_ = waits;
    recording_ = true;
  }
  std::unique_ptr<Recording> end_recording() override {
    recording_ = false;
    auto recorded = std::make_unique<RecordedWork>(std::move(work_));
    work_ = std::move(before_);
    if (refuses_recordings) fail(Code::kInternal, device_, ": the recording was refused");
    if (waits != waits_before_)
      fail(Code::kInternal, device_, ": was waited for while its stream recorded");
    return recorded;
  }
  void replay(Recording& recording) override {
    const auto& recorded = static_cast<RecordedWork&>(recording).work;
    work_.insert(work_.end(), recorded.begin(), recorded.end());
  }
  void* native() override { return this; }
  std::unique_ptr<StreamMark> make_mark() override;

 private:
  void add_copy(const void* source, void* target, size_t bytes) {
    if (bytes > 0 && source != target) add([=] { std::memcpy(target, source, bytes); });
  }

  const Device device_;
  std::vector<Work> work_, before_;
  bool recording_ = false;
  int64_t waits_before_ = 0;  // the recording
};

class SimulatedMark final : public StreamMark {
 public:
  explicit SimulatedMark(SimulatedStream& stream) : stream_(stream) {}
  void put() override {
    stream_.add([time = time_] { *time = Clock::now(); });
  }
  std::chrono::nanoseconds since(const StreamMark& earlier) const override {
    return *time_ - *static_cast<const SimulatedMark&>(earlier).time_;
  }

 private:
  using Clock = std::chrono::steady_clock;
  SimulatedStream& stream_;
  // The stream may come there when the mark has ended.
  const std::shared_ptr<Clock::time_point> time_ = std::make_shared<Clock::time_point>();
};

std::unique_ptr<StreamMark> SimulatedStream::make_mark() {
  return std::make_unique<SimulatedMark>(*this);
}

class SimulatedBackend final : public DeviceBackend {
 public:
  SimulatedBackend(int count, size_t memory_limit) {
    for (int i = 0; i < count; ++i)
      ledgers_.push_back(
          std::make_unique<MemoryLedger>(str(Device{DeviceType::kGpu, i}), memory_limit));
  }

  int count() const override { return static_cast<int>(ledgers_.size()); }
  bool shares_host_memory() const override { return false; }

  // What was not written has a value that shows.
  std::shared_ptr<Buffer> allocate(Device device, size_t bytes, std::string_view purpose) override {
    MemoryLedger& ledger = *ledgers_.at(static_cast<size_t>(device.index));
    ledger.take(bytes, purpose);
    auto& memory = DeviceMemory::instance();
    void* data = memory.map(std::max<size_t>(bytes, 1));
    memory.access([&] { std::memset(data, 0xCD, bytes); });
    return {new Buffer{data, bytes},
            [&ledger, bytes, purpose = std::string(purpose)](Buffer* buffer) {
              DeviceMemory::instance().unmap(buffer->data);
              ledger.give_back(bytes, purpose);
              delete buffer;
            }};
  }
  std::shared_ptr<Buffer> allocate_staging(Device, size_t bytes) override {
    given_for_staging += bytes;
    return allocate_host_buffer(bytes);
  }
  std::unique_ptr<Stream> make_stream(Device device) override {
    return std::make_unique<SimulatedStream>(device);
  }
  void copy_to_host(Device, const void* source, void* target, size_t bytes) override {
    DeviceMemory::instance().access([&] { std::memcpy(target, source, bytes); });
  }
  void copy_from_host(Device, const void* source, void* target, size_t bytes) override {
    DeviceMemory::instance().access([&] { std::memcpy(target, source, bytes); });
  }

 private:
  std::vector<std::unique_ptr<MemoryLedger>> ledgers_;
};

}  // namespace

// Never ended: buffers may outlive everything.
void use_simulated_gpus(int count, size_t memory_limit) {
  static auto* const all = new std::vector<std::unique_ptr<SimulatedBackend>>;
  all->push_back(std::make_unique<SimulatedBackend>(count, memory_limit));
  replace_gpu_backend(all->back().get());
}

size_t staging_bytes() { return given_for_staging; }

void refuse_recordings(bool refuse) { refuses_recordings = refuse; }

void wait_for_streams() { ++waits; }

void submit(Stream& stream, Work work) {
  static_cast<SimulatedStream&>(stream).add(std::move(work));
}

}  // namespace cohort::simulated
