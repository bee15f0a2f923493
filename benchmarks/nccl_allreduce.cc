// Measures all-reduces of gradient buckets between GPUs by NCCL: what a bucket takes the host to
// start, and the cards to be done with. One rank shows what it costs where nothing is exchanged.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "benchmarks/statistics.h"
#include "core/base/flags.h"
#include "core/base/program.h"
#include "core/device/device.h"
#include "strategies/collective/nccl/device_group.h"

namespace cohort::benchmarks {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kSizes[] = {4 << 10, 256 << 10, 1 << 20, 8 << 20, 64 << 20};
constexpr int64_t kWarmUp = 5;
constexpr auto kLimit = std::chrono::milliseconds(60'000);

struct Settings {
  int64_t ranks, buckets, repetitions;
};

Settings parse(int argc, char** argv) {
  Flags flags(argc, argv, "Measures all-reduces of gradient buckets between GPUs by NCCL.");
  Settings s;
  s.ranks = flags.integer("ranks", 0, "GPUs; 0: one, and all where there are several",
                          {.min = 0, .max = 1024});
  s.buckets = flags.integer("buckets", 8, "buckets of a step", {.min = 1, .max = 1024});
  s.repetitions = flags.integer("repetitions", 51, "steps measured of each size", {.min = 1});
  flags.finish();
  return s;
}

int count_gpus() {
  const auto devices = list_devices();
  const auto gpus = std::count_if(devices.begin(), devices.end(),
                                  [](Device d) { return d.type == DeviceType::kGpu; });
  if (gpus == 0) fail(Code::kUnavailable, "no GPU: ", missing_gpu_reason());
  return static_cast<int>(gpus);
}

double microseconds(Clock::duration d) {
  return std::chrono::duration<double, std::micro>(d).count();
}

// Of one bucket, by repetition, in microseconds.
struct Times {
  std::vector<double> start, whole;
};

// Steps that reduce `buckets` buckets of `bytes` bytes, each started when the one before it was.
Times time_buckets(DeviceCollectives& device, Stream& stream, const Settings& s, int64_t bytes) {
  const auto memory = device_backend(DeviceType::kGpu)
                          .allocate(stream.device(), static_cast<size_t>(s.buckets * bytes),
                                    "the buckets of a benchmark");
  std::vector<Segment> buckets;
  for (int64_t b = 0; b < s.buckets; ++b) {
    char* at = static_cast<char*>(memory->data) + b * bytes;
    buckets.push_back({at, at, bytes / static_cast<int64_t>(sizeof(float))});
  }
  Times times;
  for (int64_t i = -kWarmUp; i < s.repetitions; ++i) {
    const auto begin = Clock::now();
    for (const Segment& bucket : buckets)
      device.start(AllReduceCall{{&bucket, 1}, DType::kFloat32, ReduceOp::kSum}, stream,
                   bucket.target);
    const auto started = Clock::now();
    for (const Segment& bucket : buckets) device.wait(bucket.target, stream);
    stream.synchronize();
    device.check();
    if (i < 0) continue;
    const auto count = static_cast<double>(s.buckets);
    times.start.push_back(microseconds(started - begin) / count);
    times.whole.push_back(microseconds(Clock::now() - begin) / count);
  }
  return times;
}

// A thread, a GPU and a stream for each rank.
class Ranks {
 public:
  explicit Ranks(int size) {
    std::vector<Device> devices;
    for (int r = 0; r < size; ++r) {
      devices.push_back({DeviceType::kGpu, r});
      streams_.push_back(device_backend(DeviceType::kGpu).make_stream(devices.back()));
    }
    DeviceGroup group =
        add_device_collectives(make_in_process_communicators(size),
                               {.library = nccl_library(), .devices = devices, .limit = kLimit});
    if (!group.missing.empty()) fail(Code::kUnavailable, "NCCL has no group: ", group.missing);
    communicators_ = std::move(group.communicators);
  }

  // The first rank's.
  Times run(const Settings& s, int64_t bytes) {
    Times times;
    std::vector<std::optional<Error>> errors(streams_.size());
    std::vector<std::thread> threads;
    for (size_t r = 0; r < streams_.size(); ++r)
      threads.emplace_back([&, r] {
        try {
          auto own = time_buckets(*communicators_[r]->on_device(), *streams_[r], s, bytes);
          if (r == 0) times = std::move(own);
        } catch (const Error& error) {
          errors[r] = error;
          communicators_[r]->abort(error);
        }
      });
    for (std::thread& thread : threads) thread.join();
    for (const auto& error : errors)
      if (error) throw Error(*error);
    return times;
  }

 private:
  std::vector<std::unique_ptr<Stream>> streams_;
  std::vector<std::unique_ptr<Communicator>> communicators_;
};

void measure(const Settings& s, int size) {
  Ranks ranks(size);
  for (const int64_t bytes : kSizes) {
    const Times times = ranks.run(s, bytes);
    const double whole = median(times.whole);
    // What passes each card's link both ways.
    const double bus = 2.0 * (size - 1) / size * static_cast<double>(bytes) / whole / 1e3;
    std::printf(
        "cohort-nccl ranks=%d buckets=%lld bytes=%lld start_us=%.1f bucket_us=%.1f "
        "bus_GBs=%.1f\n",
        size, static_cast<long long>(s.buckets), static_cast<long long>(bytes), median(times.start),
        whole, bus);
    std::fflush(stdout);
  }
}

void measure(const Settings& s) {
  const int gpus = count_gpus();
  if (s.ranks > gpus) invalid("--ranks=", s.ranks, ": this process has ", gpus, " GPUs");
  if (s.ranks > 0) return measure(s, static_cast<int>(s.ranks));
  measure(s, 1);
  if (gpus > 1) measure(s, gpus);
}

}  // namespace
}  // namespace cohort::benchmarks

int main(int argc, char** argv) {
  return cohort::run_main(
      [&] { cohort::benchmarks::measure(cohort::benchmarks::parse(argc, argv)); });
}
