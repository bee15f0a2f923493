#include "benchmarks/forked_ranks.h"

#include <algorithm>
#include <cstdio>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "benchmarks/statistics.h"
#include "core/base/threads.h"
#include "strategies/collective/make_communicators.h"
#include "tests/strategies/collective/directory_store.h"

namespace cohort::benchmarks {
namespace {

constexpr int64_t kWarmUpRepetitions = 3;

bool read_all(int descriptor, void* target, size_t bytes) {
  for (auto* at = static_cast<char*>(target); bytes > 0;) {
    const ssize_t got = read(descriptor, at, bytes);
    if (got <= 0) return false;
    at += got;
    bytes -= static_cast<size_t>(got);
  }
  return true;
}

void write_all(int descriptor, const void* source, size_t bytes) {
  for (const auto* at = static_cast<const char*>(source); bytes > 0;) {
    const ssize_t put = write(descriptor, at, bytes);
    if (put <= 0) fail(Code::kUnavailable, "a rank of the benchmark has ended");
    at += put;
    bytes -= static_cast<size_t>(put);
  }
}

CommunicationBackend backend_from_name(const std::string& name) {
  if (name == "shm") return CommunicationBackend::kSharedMemory;
  if (name == "tcp") return CommunicationBackend::kTcp;
  if (name == "two-level") return CommunicationBackend::kAuto;
  fail(Code::kInternal, "no backend ", name);
}

// Sums of small integers are exact.
float element(int rank, int64_t index) { return static_cast<float>((rank + 1) * (index % 7 + 1)); }

using Segments = std::vector<Segment>;

// The segments of each call of a repetition.
std::vector<Segments> calls_of(float* memory, const Reductions& reductions) {
  const int64_t count = reductions.bytes / 4, parts = reductions.segments;
  Segments segments;
  for (int64_t i = 0; i < parts; ++i) {
    const int64_t begin = count * i / parts, end = count * (i + 1) / parts;
    segments.push_back({memory + begin, memory + begin, end - begin});
  }
  if (reductions.in_one_call) return {segments};
  std::vector<Segments> calls;
  for (const Segment& segment : segments) calls.push_back({segment});
  return calls;
}

void reduce(Communicator& communicator, const std::vector<Segments>& calls) {
  for (const Segments& segments : calls)
    communicator.all_reduce(segments, DType::kFloat32, ReduceOp::kSum);
}

void verify(Communicator& communicator, const std::vector<Segments>& calls, float* memory,
            int64_t count) {
  const int rank = communicator.rank(), size = communicator.size();
  for (int64_t i = 0; i < count; ++i) memory[i] = element(rank, i);
  reduce(communicator, calls);
  for (int64_t i = 0; i < count; ++i)
    if (const float sum = element(0, i) * static_cast<float>(size * (size + 1)) / 2;
        memory[i] != sum)
      fail(Code::kInternal, "wrong sum at ", i, ": ", memory[i], " instead of ", sum);
}

}  // namespace

std::vector<double> time_all_reduces(Communicator& communicator, float* memory,
                                     const Reductions& reductions) {
  const int64_t count = reductions.bytes / 4;
  const std::vector<Segments> calls = calls_of(memory, reductions);
  verify(communicator, calls, memory, count);
  std::fill(memory, memory + count, 1e-20f);  // whose sums stay numbers of the usual kind
  std::vector<double> times;
  for (int64_t i = 0; i < kWarmUpRepetitions + reductions.repetitions; ++i) {
    communicator.barrier();
    const auto begin = std::chrono::steady_clock::now();
    reduce(communicator, calls);
    if (i >= kWarmUpRepetitions) times.push_back(1e3 * milliseconds_since(begin));
  }
  communicator.barrier();
  return times;
}

ForkedRanks::ForkedRanks(const Options& options) : options_(options) {
  for (int r = 0; r < options.ranks; ++r) {
    int commands[2], results[2];
    if (pipe(commands) != 0 || pipe(results) != 0) fail(Code::kResourceExhausted, "no more pipes");
    std::fflush(stdout);
    const pid_t pid = fork();
    if (pid < 0) fail(Code::kResourceExhausted, "cannot fork");
    if (pid == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      close(commands[1]);
      close(results[0]);
      for (const Process& other : processes_) {
        close(other.commands);
        close(other.results);
      }
      try {
        serve(r, commands[0], results[1]);
      } catch (const Error& error) {
        std::fprintf(stderr, "rank %d: %s\n", r, error.what());
        _exit(1);
      }
      _exit(0);
    }
    close(commands[0]);
    close(results[1]);
    processes_.push_back({pid, commands[1], results[0]});
  }
}

ForkedRanks::~ForkedRanks() {
  for (const Process& process : processes_) {
    close(process.commands);
    close(process.results);
  }
  for (const Process& process : processes_) waitpid(process.pid, nullptr, 0);
}

std::vector<double> ForkedRanks::run(const Reductions& reductions) {
  for (const Process& process : processes_)
    write_all(process.commands, &reductions, sizeof(reductions));
  std::vector<double> times(static_cast<size_t>(reductions.repetitions)), of_rank_0;
  for (const Process& process : processes_) {
    if (!read_all(process.results, times.data(), times.size() * sizeof(double)))
      fail(Code::kUnavailable, "a rank of the benchmark has ended");
    if (of_rank_0.empty()) of_rank_0 = times;
  }
  return of_rank_0;
}

void ForkedRanks::serve(int rank, int commands, int results) const {
  set_num_threads(1);
  testing::DirectoryStore store(folder_.path());
  const auto group =
      make_communicators({.store = &store,
                          .name = "benchmark",
                          .process = rank,
                          .processes = options_.ranks,
                          .backend = backend_from_name(options_.backend),
                          .host = str("host", rank * options_.hosts / options_.ranks)});
  Communicator& communicator = *group.communicators[0];
  const auto bytes = static_cast<size_t>(options_.most_bytes);
  const auto buffer =
      options_.own_buffers ? allocate_host_buffer(bytes) : communicator.allocate(bytes);
  auto* const memory = static_cast<float*>(buffer->data);
  for (Reductions reductions; read_all(commands, &reductions, sizeof(reductions));) {
    const auto times = time_all_reduces(communicator, memory, reductions);
    write_all(results, times.data(), times.size() * sizeof(double));
  }
}

}  // namespace cohort::benchmarks
