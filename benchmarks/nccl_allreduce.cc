// Measures all-reduces of gradient buckets between GPUs by NCCL: what a bucket takes the host to
// start, and the cards to be done with. One rank shows what it costs where nothing is exchanged,
// and --processes that processes reach each other, also where there is one card. --shared has
// logical GPUs of one card add up there, which NCCL refuses, beside what the card takes to copy.
#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

#include "benchmarks/statistics.h"
#include "core/base/flags.h"
#include "core/base/program.h"
#include "core/base/temporary_folder.h"
#include "core/device/device.h"
#include "strategies/collective/make_communicators.h"
#include "strategies/collective/nccl/device_group.h"
#include "strategies/collective/shared_card/shared_card_library.h"
#include "tests/strategies/collective/directory_store.h"

namespace cohort::benchmarks {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kSizes[] = {4 << 10, 256 << 10, 1 << 20, 8 << 20, 64 << 20};
constexpr size_t kCopied = size_t{512} << 20;
constexpr int64_t kWarmUp = 5;
constexpr auto kLimit = std::chrono::milliseconds(60'000);
constexpr auto kLookInterval = std::chrono::milliseconds(20);

struct Settings {
  int64_t ranks, processes, shared, buckets, repetitions;
};

Settings parse(int argc, char** argv) {
  Flags flags(argc, argv, "Measures all-reduces of gradient buckets between GPUs by NCCL.");
  Settings s;
  s.ranks = flags.integer("ranks", 0, "GPUs; 0: one, and all where there are several",
                          {.min = 0, .max = 1024});
  s.processes = flags.integer("processes", 0, "processes that share the first GPU; 0: this alone",
                              {.min = 0, .max = 16});
  s.shared = flags.integer("shared", 0, "logical GPUs that share the first GPU; 0: none",
                           {.min = 0, .max = 16});
  s.buckets = flags.integer("buckets", 8, "buckets of a step", {.min = 1, .max = 1024});
  s.repetitions = flags.integer("repetitions", 51, "steps measured of each size", {.min = 1});
  flags.finish();
  if (s.ranks > 0 && s.processes > 0) invalid("--processes have one rank each, not --ranks");
  if (s.shared > 0 && (s.ranks > 0 || s.processes > 0))
    invalid("--shared is for one process and has that many ranks: without --ranks and --processes");
  return s;
}

int count_gpus() {
  const auto devices = list_devices();
  const auto gpus = std::count_if(devices.begin(), devices.end(),
                                  [](Device d) { return d.type == DeviceType::kGpu; });
  if (gpus == 0) fail(Code::kUnavailable, "no GPU: ", missing_gpu_reason());
  return static_cast<int>(gpus);
}

// Of one bucket, by repetition, in microseconds.
struct Times {
  std::vector<double> start, whole;
};

// Memory for buckets as plans have it.
std::shared_ptr<Buffer> allocate(DeviceCollectives& device, Device gpu, size_t bytes) {
  if (auto memory = device.allocate(bytes)) return memory;
  return device_backend(gpu.type).allocate(gpu, bytes, "the buckets of a benchmark");
}

// Steps that reduce `buckets` buckets of `bytes` bytes, each started when the one before it was.
Times time_buckets(DeviceCollectives& device, Stream& stream, const Settings& s, int64_t bytes) {
  const auto memory = allocate(device, stream.device(), static_cast<size_t>(s.buckets * bytes));
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

// Ones add up to the number of ranks.
void verify(DeviceCollectives& device, Stream& stream, int ranks) {
  DeviceBackend& backend = device_backend(DeviceType::kGpu);
  std::vector<float> values(size_t{1} << 20, 1.0F);
  const size_t bytes = values.size() * sizeof(float);
  const auto memory = allocate(device, stream.device(), bytes);
  backend.copy_from_host(stream.device(), values.data(), memory->data, bytes);
  const Segment bucket{memory->data, memory->data, static_cast<int64_t>(values.size())};
  device.start(AllReduceCall{{&bucket, 1}, DType::kFloat32, ReduceOp::kSum}, stream, memory->data);
  device.wait(memory->data, stream);
  stream.synchronize();
  device.check();
  backend.copy_to_host(stream.device(), memory->data, values.data(), bytes);
  for (const float sum : values)
    if (sum != static_cast<float>(ranks))
      fail(Code::kInternal, "wrong sum: ", sum, " instead of ", ranks);
}

// A thread, a GPU and a stream for each rank of this process.
class Ranks {
 public:
  explicit Ranks(std::vector<std::unique_ptr<Communicator>> host,
                 DeviceLibrary* library = nccl_library()) {
    std::vector<Device> devices;
    for (size_t r = 0; r < host.size(); ++r) {
      devices.push_back({DeviceType::kGpu, static_cast<int>(r)});
      streams_.push_back(device_backend(DeviceType::kGpu).make_stream(devices.back()));
    }
    DeviceGroup group = add_device_collectives(
        std::move(host), {.library = library, .devices = devices, .limit = kLimit});
    if (!group.missing.empty())
      fail(Code::kUnavailable, library->name(), " has no group: ", group.missing);
    communicators_ = std::move(group.communicators);
  }
  ~Ranks() { end_together(std::move(communicators_)); }
  Ranks(const Ranks&) = delete;
  Ranks& operator=(const Ranks&) = delete;

  // Of all processes.
  int size() const { return communicators_[0]->size(); }
  bool is_first() const { return communicators_[0]->rank() == 0; }

  // The first one's here.
  Times run(const Settings& s, int64_t bytes) {
    Times times;
    std::vector<std::optional<Error>> errors(streams_.size());
    std::vector<std::thread> threads;
    for (size_t r = 0; r < streams_.size(); ++r)
      threads.emplace_back([&, r] {
        try {
          DeviceCollectives& device = *communicators_[r]->on_device();
          verify(device, *streams_[r], size());
          auto own = time_buckets(device, *streams_[r], s, bytes);
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

void measure(const Settings& s, Ranks ranks) {
  for (const int64_t bytes : kSizes) {
    const Times times = ranks.run(s, bytes);
    if (!ranks.is_first()) continue;
    const int size = ranks.size();
    const double whole = median(times.whole);
    // What passes each card's link both ways.
    const double bus = 2.0 * (size - 1) / size * static_cast<double>(bytes) / whole / 1e3;
    std::printf(
        "cohort-nccl ranks=%d processes=%lld buckets=%lld bytes=%lld start_us=%.1f bucket_us=%.1f "
        "bus_GBs=%.1f\n",
        size, static_cast<long long>(std::max<int64_t>(s.processes, 1)),
        static_cast<long long>(s.buckets), static_cast<long long>(bytes), median(times.start),
        whole, bus);
    std::fflush(stdout);
  }
}

// Gigabytes that the card reads and writes in a second while it copies.
double copy_rate(Device device, int64_t repetitions) {
  DeviceBackend& backend = device_backend(device.type);
  const auto source = backend.allocate(device, kCopied, "what a benchmark copies"),
             target = backend.allocate(device, kCopied, "the copy of a benchmark");
  const auto stream = backend.make_stream(device);
  std::vector<double> times;
  for (int64_t i = -kWarmUp; i < repetitions; ++i) {
    const auto begin = Clock::now();
    stream->copy_within_device(source->data, target->data, kCopied);
    stream->synchronize();
    if (i >= 0) times.push_back(microseconds(Clock::now() - begin));
  }
  return 2 * static_cast<double>(kCopied) / median(times) / 1e3;
}

// Of each bucket, every rank's elements are read once and written once.
void measure_shared_card(const Settings& s) {
  count_gpus();
  const auto size = static_cast<int>(s.shared);
  set_logical_gpus(std::vector<LogicalGpu>(static_cast<size_t>(size), LogicalGpu{.card = 0}));
  SharedCardLibrary library(size);
  Ranks ranks(make_in_process_communicators(size), &library);
  const double copied = copy_rate({DeviceType::kGpu, 0}, s.repetitions);
  for (const int64_t bytes : kSizes) {
    const double whole = median(ranks.run(s, bytes).whole);
    const double moved = 2.0 * size * static_cast<double>(bytes) / whole / 1e3;
    std::printf(
        "cohort-shared-card ranks=%d buckets=%lld bytes=%lld bucket_us=%.1f moved_GBs=%.1f "
        "copy_GBs=%.1f\n",
        size, static_cast<long long>(s.buckets), static_cast<long long>(bytes), whole, moved,
        copied);
    std::fflush(stdout);
  }
}

// One of several processes on one card, which NCCL takes for as many hosts.
void be_process(const Settings& s, int process, const std::string& folder) {
  count_gpus();
  setenv("NCCL_HOSTID", str("process ", process).c_str(), 1);
  testing::DirectoryStore store(folder);
  auto group = make_communicators({.store = &store,
                                   .name = "benchmark",
                                   .process = process,
                                   .processes = static_cast<int>(s.processes),
                                   .backend = CommunicationBackend::kSharedMemory});
  measure(s, Ranks(std::move(group.communicators)));
}

// Until they have ended, which an interrupt has them do at once: they would wait for each other.
void wait_for(std::vector<pid_t> processes) {
  bool good = true;
  while (!processes.empty()) {
    if (interrupted())
      for (const pid_t pid : processes) kill(pid, SIGKILL);
    std::erase_if(processes, [&](pid_t pid) {
      int status = 0;
      const pid_t ended = waitpid(pid, &status, WNOHANG);
      if (ended == 0) return false;
      good &= ended == pid && status == 0;
      return true;
    });
    std::this_thread::sleep_for(kLookInterval);
  }
  if (good) return;
  if (interrupted()) fail(Code::kCancelled, "interrupted");
  fail(Code::kUnavailable, "a process of the benchmark has failed");
}

// Forks them before anything asks CUDA, which does not survive that.
void measure_processes(const Settings& s) {
  const TemporaryFolder folder("nccl_allreduce");
  std::vector<pid_t> processes;
  for (int p = 0; p < static_cast<int>(s.processes); ++p) {
    const pid_t pid = fork();
    if (pid < 0) fail(Code::kResourceExhausted, "cannot fork");
    if (pid == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      std::signal(SIGINT, SIG_IGN);  // its parent looks after interrupts
      try {
        be_process(s, p, folder.path());
      } catch (const std::exception& error) {
        std::fprintf(stderr, "process %d: %s\n", p, error.what());
        _exit(1);
      }
      _exit(0);
    }
    processes.push_back(pid);
  }
  wait_for(std::move(processes));
}

void measure(const Settings& s) {
  if (s.processes > 0) return measure_processes(s);
  if (s.shared > 0) return measure_shared_card(s);
  const int gpus = count_gpus();
  if (s.ranks > gpus) invalid("--ranks=", s.ranks, ": this process has ", gpus, " GPUs");
  const auto on_gpus = [&](int64_t ranks) {
    measure(s, Ranks(make_in_process_communicators(static_cast<int>(ranks))));
  };
  if (s.ranks > 0) return on_gpus(s.ranks);
  on_gpus(1);
  if (gpus > 1) on_gpus(gpus);
}

}  // namespace
}  // namespace cohort::benchmarks

int main(int argc, char** argv) {
  return cohort::run_main(
      [&] { cohort::benchmarks::measure(cohort::benchmarks::parse(argc, argv)); });
}
