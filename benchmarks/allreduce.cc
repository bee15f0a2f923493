// Measures all-reduces of float32 in place, alone or in alternation with other libraries and with
// what the memory, or one TCP connection, can do.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <sstream>
#include <thread>

#include "benchmarks/allreduce_peers.h"
#include "benchmarks/forked_ranks.h"
#include "benchmarks/machine_peers.h"
#include "benchmarks/statistics.h"
#include "core/base/comma_separated.h"
#include "core/base/flags.h"
#include "core/base/program.h"
#include "core/base/threads.h"
#include "tests/testing/certificates.h"

namespace cohort::benchmarks {
namespace {

struct Settings {
  std::string backend;
  std::vector<int64_t> ranks, bytes;
  int64_t repetitions, rounds, segments;
  bool own_buffers, tls;
  std::vector<std::string> peers;
  std::string peer_sources;
};

// A gibibyte altogether, within reason.
int64_t repetitions_of(const Settings& s, int64_t bytes) {
  return s.repetitions > 0 ? s.repetitions
                           : std::clamp<int64_t>((int64_t{1} << 30) / bytes, 11, 2001);
}

std::vector<std::string> split(const std::string& list) {
  std::vector<std::string> items;
  std::istringstream in(list);
  for (std::string item; std::getline(in, item, ',');)
    if (!item.empty()) items.push_back(item);
  return items;
}

std::vector<int64_t> numbers(const std::string& flag, const std::string& list, int64_t multiple,
                             int64_t most) {
  std::vector<int64_t> numbers;
  for (const std::string& item : split(list)) {
    char* end = nullptr;
    const int64_t number = std::strtoll(item.c_str(), &end, 10);
    if (*end != 0 || number < 1 || number > most || number % multiple != 0)
      invalid("--", flag, " holds numbers from 1 to ", most, ", multiples of ", multiple, ", got ",
              item);
    numbers.push_back(number);
  }
  if (numbers.empty()) invalid("--", flag, " is empty");
  return numbers;
}

Settings parse(int argc, char** argv) {
  Flags flags(argc, argv, "Measures in-place all-reduces of float32 between ranks.");
  Settings s;
  s.backend =
      flags.text("backend", "threads",
                 "what the ranks are and share: threads, or processes with shared memory, "
                 "TCP over loopback, or shared memory in each of two halves and TCP between",
                 {.choices = {"threads", "shm", "tcp", "two-level"}});
  s.tls = flags.boolean("tls", false, "TCP is encrypted, with certificates made by openssl");
  s.ranks = numbers("np", flags.text("np", "2", "numbers of ranks"), 1, 64);
  s.bytes = numbers("bytes", flags.text("bytes", "104857600", "sizes of what each rank reduces"), 4,
                    int64_t{1} << 32);
  s.repetitions =
      flags.integer("repetitions", 0,
                    "all-reduces in each round; 0: a gibibyte altogether, 11 to 2001", {.min = 0});
  s.rounds = flags.integer("rounds", 5, "rounds, alternating with the peers'", {.min = 1});
  s.segments = flags.integer("segments", 1,
                             "parts of what a rank reduces; several are reduced by one call, and, "
                             "in turns with it, by a call for each",
                             {.min = 1, .max = 100'000});
  s.own_buffers = flags.text("buffers", "registered",
                             "memory that the communicator allocated, or the ranks' own",
                             {.choices = {"registered", "own"}}) == "own";
  s.peers = split(flags.text("vs", "", "also runs these: openmpi, gloo, memory, socket"));
  s.peer_sources =
      flags.text("peer-sources", peer_sources(argv[0]), "where the programs of the peers are");
  flags.finish();
  if (const int64_t least = *std::min_element(s.bytes.begin(), s.bytes.end());
      s.segments > least / 4)
    invalid("--segments is ", least / 4, " at most, as many as ", least,
            " bytes have numbers, got ", s.segments);
  for (const std::string& peer : s.peers)
    if (const auto names = PeerProgram::names();
        std::find(names.begin(), names.end(), peer) == names.end())
      invalid("--vs names some of ", comma_separated(names), ", got ", peer);
  const bool sends = s.backend == "tcp" && *std::min_element(s.ranks.begin(), s.ranks.end()) > 1;
  if (!sends && std::find(s.peers.begin(), s.peers.end(), kSocketPeer) != s.peers.end())
    invalid("--vs=socket is for --backend=tcp with 2 ranks or more, got --backend=", s.backend,
            " and --np=", comma_separated(s.ranks));
  return s;
}

// Ranks that are threads, each with a buffer that it has touched first.
class ThreadRanks {
 public:
  ThreadRanks(int size, int64_t most_bytes)
      : most_bytes_(most_bytes), communicators_(make_in_process_communicators(size)) {}

  std::vector<double> run(const Reductions& reductions) {
    std::vector<double> times;
    std::vector<std::thread> threads;
    for (const auto& communicator : communicators_)
      threads.emplace_back([&] {
        set_num_threads(1);
        const auto buffer = allocate_host_buffer(static_cast<size_t>(most_bytes_));
        auto own = time_all_reduces(*communicator, static_cast<float*>(buffer->data), reductions);
        if (communicator->rank() == 0) times = std::move(own);
        communicator->barrier();  // nobody's memory goes away while another reads it
      });
    for (std::thread& thread : threads) thread.join();
    return times;
  }

 private:
  const int64_t most_bytes_;
  std::vector<std::unique_ptr<Communicator>> communicators_;
};

double gigabytes_per_second(int64_t bytes, double microseconds) {
  return static_cast<double>(bytes) / microseconds / 1e3;
}

// A figure of each round, by size.
using Rounds = std::map<int64_t, std::vector<double>>;

void add(Rounds& rounds, const std::map<int64_t, double>& medians) {
  for (const auto& [bytes, microseconds] : medians) rounds[bytes].push_back(microseconds);
}

// The bandwidth of the bus is as nccl-tests has it, of what each rank has to send at least: so it
// can be compared between numbers of ranks.
void report(const std::string& name, int ranks, const Rounds& rounds) {
  for (const auto& [bytes, medians] : rounds) {
    const double bandwidth = gigabytes_per_second(bytes, median(medians));
    std::printf("%s np=%d bytes=%lld median_us=%.2f algbw_GBs=%.3f busbw_GBs=%.3f\n", name.c_str(),
                ranks, static_cast<long long>(bytes), median(medians), bandwidth,
                bandwidth * 2 * (ranks - 1) / ranks);
  }
}

struct Peers {
  std::vector<std::unique_ptr<AllReducePeer>> libraries;
  std::optional<MemoryPeer> memory;
  std::optional<SocketPeer> socket;
};

// What each rank of a ring sends of so many bytes, and takes: all parts but its own twice, once to
// add them up and once added up.
int64_t bytes_each_way(int ranks, int64_t bytes) { return 2 * bytes * (ranks - 1) / ranks; }

// Of what goes by TCP, held against one connection that carries the same both ways at once.
void report_socket(const std::string& name, int ranks, const Rounds& own, const Rounds& sockets) {
  constexpr double kWanted = 0.8;
  for (const auto& [bytes, bandwidths] : sockets) {
    const int64_t each_way = bytes_each_way(ranks, bytes);
    const double reached = gigabytes_per_second(each_way, median(own.at(bytes)));
    std::printf(
        "ratio np=%d bytes=%lld each_way_bytes=%lld each_way_GBs=%.3f %s/socket=%.2f at_least=%.2f "
        "(medians of %zu alternating rounds)\n",
        ranks, static_cast<long long>(bytes), static_cast<long long>(each_way), reached,
        name.c_str(), reached / median(bandwidths), kWanted, bandwidths.size());
  }
}

// `run(reductions)` gives the microseconds of the ranks that are measured.
template <typename Run>
void measure(const Settings& s, int ranks, const std::string& name, const Run& run,
             const Peers& peers) {
  Rounds own, fastest, one_by_one, sockets;
  const auto& libraries = peers.libraries;
  std::vector<Rounds> others(libraries.size());
  std::map<int, std::vector<double>> bandwidths;  // by threads
  for (int64_t round = 0; round < s.rounds; ++round) {
    for (const int64_t bytes : s.bytes) {
      Reductions reductions{
          .bytes = bytes, .segments = s.segments, .repetitions = repetitions_of(s, bytes)};
      const std::vector<double> times = run(reductions);
      own[bytes].push_back(median(times));
      fastest[bytes].push_back(*std::min_element(times.begin(), times.end()));
      if (s.segments == 1) continue;
      reductions.in_one_call = false;
      one_by_one[bytes].push_back(median(run(reductions)));
    }
    for (size_t p = 0; p < libraries.size(); ++p) add(others[p], libraries[p]->run(ranks, s.bytes));
    if (peers.memory)
      for (const int threads : std::set<int>{1, ranks})
        bandwidths[threads].push_back(peers.memory->run(threads));
    if (peers.socket)
      for (const int64_t bytes : s.bytes)
        sockets[bytes].push_back(
            peers.socket->run(bytes_each_way(ranks, bytes), repetitions_of(s, bytes)).both_ways);
  }
  report(name, ranks, own);
  report(name + "-calls", ranks, one_by_one);
  for (const auto& [bytes, medians] : one_by_one)
    std::printf(
        "ratio np=%d bytes=%lld segments=%lld %s one call/calls=%.2f (medians of %zu alternating "
        "rounds)\n",
        ranks, static_cast<long long>(bytes), static_cast<long long>(s.segments), name.c_str(),
        median(medians) / median(own[bytes]), medians.size());
  for (size_t p = 0; p < libraries.size(); ++p) {
    report(libraries[p]->name(), ranks, others[p]);
    for (const auto& [bytes, medians] : own)
      std::printf("ratio np=%d bytes=%lld %s/%s=%.2f (medians of %zu alternating rounds)\n", ranks,
                  static_cast<long long>(bytes), name.c_str(), libraries[p]->name().c_str(),
                  median(others[p][bytes]) / median(medians), medians.size());
  }
  // Of memory the best of the repetitions is known, which is held against the best here.
  for (const auto& [threads, added] : bandwidths)
    for (const auto& [bytes, times] : fastest)
      std::printf(
          "ratio np=%d bytes=%lld %s/add by %d thread%s=%.2f (medians of the best of %zu "
          "alternating rounds)\n",
          ranks, static_cast<long long>(bytes), name.c_str(), threads, threads == 1 ? "" : "s",
          gigabytes_per_second(bytes, median(times)) / median(added), added.size());
  report_socket(name, ranks, own, sockets);
  std::fflush(stdout);
}

void measure(const Settings& s) {
  Peers peers;
  for (const std::string& peer : s.peers) {
    if (peer == kMemoryPeer)
      peers.memory.emplace(s.peer_sources);
    else if (peer == kSocketPeer)
      peers.socket.emplace(s.peer_sources);
    else
      peers.libraries.push_back(std::make_unique<AllReducePeer>(peer, s.peer_sources));
  }
  const int64_t most_bytes = *std::max_element(s.bytes.begin(), s.bytes.end());
  const std::string name =
      str("cohort-", s.backend, s.tls ? "-tls" : "", s.own_buffers ? "-own" : "");
  std::optional<testing::Certificates> certificates;
  if (s.tls) {
    const TlsFiles files = certificates.emplace().files();
    setenv("COHORT_TLS_CERT", files.certificate.c_str(), 1);
    setenv("COHORT_TLS_KEY", files.key.c_str(), 1);
    setenv("COHORT_TLS_CA", files.authority.c_str(), 1);
  }
  for (const int64_t np : s.ranks) {
    const int ranks = static_cast<int>(np);
    const auto run_on = [&](auto&& group) {
      measure(
          s, ranks, name, [&](const Reductions& reductions) { return group.run(reductions); },
          peers);
    };
    if (s.backend == "threads")
      run_on(ThreadRanks(ranks, most_bytes));
    else
      run_on(ForkedRanks(
          {ranks, s.backend, s.backend == "two-level" ? 2 : 1, s.own_buffers, most_bytes}));
  }
}

}  // namespace
}  // namespace cohort::benchmarks

int main(int argc, char** argv) {
  return cohort::run_main(
      [&] { cohort::benchmarks::measure(cohort::benchmarks::parse(argc, argv)); });
}
