// Measures all-reduces of float32 in place, alone or beside a program that prints what the memory
// can do.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <thread>

#include "benchmarks/statistics.h"
#include "core/base/flags.h"
#include "core/base/program.h"
#include "core/base/threads.h"
#include "core/collective/communicator.h"

namespace cohort::benchmarks {
namespace {

constexpr int64_t kWarmUpRepetitions = 3;

struct Settings {
  int ranks;
  int64_t bytes, repetitions, rounds;
  std::string peer;
};

// A gibibyte altogether, within reason.
int64_t usual_repetitions(int64_t bytes) {
  return std::clamp<int64_t>((int64_t{1} << 30) / bytes, 11, 100'000);
}

Settings parse(int argc, char** argv) {
  Flags flags(argc, argv, "Measures in-place all-reduces of float32 between ranks.");
  Settings s;
  flags.text("backend", "threads", "what the ranks are", {.choices = {"threads"}});
  s.ranks = static_cast<int>(flags.integer("np", 2, "ranks", {.min = 1, .max = 1024}));
  s.bytes =
      flags.integer("bytes", 104'857'600, "bytes that each rank reduces, of 4 each", {.min = 4});
  s.repetitions = flags.integer("repetitions", usual_repetitions(std::max<int64_t>(s.bytes, 4)),
                                "all-reduces in each round", {.min = 1});
  s.rounds = flags.integer("rounds", 5, "rounds, alternating with the peer's", {.min = 1});
  s.peer = flags.text(
      "peer", "",
      "a program that prints lines like \"threads=2 add_GBs(of a)=10.0\" to compare with");
  flags.finish();
  if (s.bytes % 4 != 0) invalid("--bytes must be a multiple of 4, got ", s.bytes);
  return s;
}

// Ranks that are threads, each with a buffer that it has touched first.
class Ranks {
 public:
  explicit Ranks(const Settings& settings)
      : settings_(settings), communicators_(make_in_process_communicators(settings.ranks)) {}

  // Microseconds of each all-reduce, as rank 0 saw them.
  std::vector<double> run(int64_t repetitions) {
    std::vector<double> times;
    std::vector<std::thread> threads;
    for (int r = 0; r < settings_.ranks; ++r)
      threads.emplace_back([&, r] {
        auto own = reduce(*communicators_[static_cast<size_t>(r)], repetitions);
        if (r == 0) times = std::move(own);
      });
    for (std::thread& thread : threads) thread.join();
    return times;
  }

 private:
  std::vector<double> reduce(Communicator& communicator, int64_t repetitions) const {
    set_num_threads(1);
    Tensor data = Tensor::zeros(DType::kFloat32, {settings_.bytes / 4});  // sums stay zero
    const Segment segment{data.raw(), data.raw(), data.num_elements()};
    std::vector<double> times;
    for (int64_t i = 0; i < kWarmUpRepetitions + repetitions; ++i) {
      const auto begin = std::chrono::steady_clock::now();
      communicator.all_reduce({&segment, 1}, DType::kFloat32, ReduceOp::kSum);
      if (i >= kWarmUpRepetitions) times.push_back(1e3 * milliseconds_since(begin));
    }
    communicator.barrier();  // nobody's memory goes away while another reads it
    return times;
  }

  const Settings& settings_;
  std::vector<std::unique_ptr<Communicator>> communicators_;
};

// Runs the peer, echoes its lines, and returns the add bandwidth for as many threads as there are
// ranks, or the last one that it prints.
double run_peer(const Settings& s) {
  const auto close = [](FILE* f) { pclose(f); };
  const std::unique_ptr<FILE, decltype(close)> pipe(popen(s.peer.c_str(), "r"), close);
  if (!pipe) fail(Code::kUnavailable, "cannot start ", s.peer);
  const std::string wanted = str("threads=", s.ranks, " ");
  char line[512];
  double bandwidth = 0;
  bool found_wanted = false;
  while (std::fgets(line, sizeof(line), pipe.get()) != nullptr) {
    std::printf("peer %s", line);
    const char* found = std::strstr(line, "add_GBs");
    if (found == nullptr || found_wanted) continue;
    if (const char* number = std::strchr(found, '=')) bandwidth = std::atof(number + 1);
    found_wanted = std::strstr(line, wanted.c_str()) != nullptr;
  }
  if (bandwidth <= 0)
    fail(Code::kUnavailable, "the peer printed no line with \"add_GBs...=NUMBER\": ", s.peer);
  return bandwidth;
}

double gigabytes_per_second(const Settings& s, double microseconds) {
  return static_cast<double>(s.bytes) / microseconds / 1e3;
}

void measure(const Settings& s) {
  Ranks ranks(s);
  std::vector<double> times, peers;
  for (int64_t round = 0; round < s.rounds; ++round) {
    const auto own = ranks.run(s.repetitions);
    times.insert(times.end(), own.begin(), own.end());
    if (!s.peer.empty()) peers.push_back(run_peer(s));
  }
  const double bandwidth = gigabytes_per_second(s, median(times));
  std::printf("cohort allreduce backend=threads np=%d bytes=%lld median_us=%.2f GBs=%.2f\n",
              s.ranks, static_cast<long long>(s.bytes), median(times), bandwidth);
  if (!s.peer.empty())
    std::printf("ratio allreduce/add=%.2f (medians of %zu alternating rounds)\n",
                bandwidth / median(peers), peers.size());
}

}  // namespace
}  // namespace cohort::benchmarks

int main(int argc, char** argv) {
  return cohort::run_main(
      [&] { cohort::benchmarks::measure(cohort::benchmarks::parse(argc, argv)); });
}
