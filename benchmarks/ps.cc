// Measures pushes to a parameter server, with their update, and pulls from it, on one host; those
// that go by TCP also in turns with a program that does nothing but send.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "benchmarks/machine_peers.h"
#include "benchmarks/statistics.h"
#include "core/base/flags.h"
#include "core/base/program.h"
#include "core/base/random.h"
#include "core/optim/optimizers.h"
#include "strategies/cluster/launcher/reserved_port.h"
#include "strategies/parameter_server/client.h"
#include "strategies/parameter_server/lent_memory.h"
#include "strategies/parameter_server/partitioner.h"
#include "strategies/parameter_server/server.h"

namespace cohort::benchmarks {
namespace {

constexpr int kWarmUpRepetitions = 3;
const std::map<std::string, Transport> kTransports = {{"memory", Transport::kSharedMemory},
                                                      {"direct", Transport::kDirect},
                                                      {"grpc", Transport::kGrpc}};

struct Settings {
  int64_t bytes, shards, workers, repetitions, rounds, rows, columns, batch;
  std::string transport, peer_sources;
  bool vs_socket;
};

Settings parse(int argc, char** argv) {
  Flags flags(argc, argv, "Measures pushes to a parameter server and pulls from it.");
  Settings s;
  s.bytes = flags.integer("bytes", 104'857'600, "bytes that a call moves, of 4 each", {.min = 4});
  s.shards = flags.integer(
      "shards", 0, "of these bytes or rows; 0: of a MiB or two each, and one of rows", {.min = 0});
  s.workers =
      flags.integer("workers", 1, "threads with a client of their own", {.min = 1, .max = 64});
  s.repetitions = flags.integer("repetitions", 0,
                                "calls of each kind in a round; 0: a GiB altogether, within "
                                "reason",
                                {.min = 0});
  s.rounds = flags.integer("rounds", 3, "in which all kinds of calls take turns, but those of rows",
                           {.min = 1});
  s.rows = flags.integer("rows", 0, "of a table instead: its rows", {.min = 0});
  s.columns = flags.integer("columns", 64, "of the table", {.min = 1});
  s.batch = flags.integer("batch", 4096, "random rows in each call", {.min = 1});
  s.transport =
      flags.text("transport", "memory", "memory (shared), direct or grpc (both over loopback TCP)");
  s.vs_socket = flags.text("vs", "", "also what one TCP connection carries: socket",
                           {.choices = {"", kSocketPeer}}) == kSocketPeer;
  s.peer_sources =
      flags.text("peer-sources", peer_sources(argv[0]), "where the program of the peer is");
  flags.finish();
  if (!kTransports.contains(s.transport))
    invalid("--transport is memory, direct or grpc, got ", s.transport);
  if (s.vs_socket && (s.transport == "memory" || s.rows > 0))
    invalid("--vs=socket is for --transport=direct or grpc, and not for --rows");
  if (s.bytes % 4 != 0) invalid("--bytes must be a multiple of 4, got ", s.bytes);
  const int64_t moved = s.rows > 0 ? s.batch * s.columns * 4 : s.bytes;
  if (s.repetitions == 0) s.repetitions = std::clamp<int64_t>((int64_t{1} << 30) / moved, 11, 2000);
  constexpr int64_t kUsualShardBytes = 3 << 19;
  if (s.shards == 0) s.shards = s.rows > 0 ? 1 : std::max<int64_t>(1, s.bytes / kUsualShardBytes);
  if (s.rows > 0 && s.shards > s.rows)
    invalid("--shards is ", s.rows, " at most, as many as there are rows, got ", s.shards);
  if (s.rows > 0 && s.workers > s.rows)
    invalid("--workers is ", s.rows, " at most, as many as there are rows, got ", s.workers);
  return s;
}

// A server in a process of its own, as in a job; it ends with the object.
class ServerProcess {
 public:
  explicit ServerProcess(const Address& address) : pid_(fork()) {
    if (pid_ != 0) return;
    _exit(run_main([&] {
      ParameterServer server(address,
                             {.job_id = "benchmark", .orphaned_after = std::chrono::seconds(5)});
      server.wait();
    }));
  }
  ~ServerProcess() { waitpid(pid_, nullptr, 0); }

 private:
  pid_t pid_;
};

// The times of a call made by all workers side by side, as the first one saw them.
std::vector<double> measure(const Settings& s, const std::function<void(int64_t worker)>& call) {
  std::vector<double> times;
  std::vector<std::thread> threads;
  for (int64_t w = 0; w < s.workers; ++w)
    threads.emplace_back([&, w] {
      for (int64_t i = 0; i < kWarmUpRepetitions + s.repetitions; ++i) {
        const auto begin = std::chrono::steady_clock::now();
        call(w);
        if (w == 0 && i >= kWarmUpRepetitions) times.push_back(1e3 * milliseconds_since(begin));
      }
    });
  for (std::thread& thread : threads) thread.join();
  return times;
}

double gigabytes_per_second(const Settings& s, int64_t bytes, double us) {
  return static_cast<double>(bytes * s.workers) / us / 1e3;
}

void report(const Settings& s, const char* op, int64_t bytes, const std::vector<double>& times) {
  const double us = median(times);
  std::printf(
      "cohort-ps op=%s bytes=%lld median_us=%.1f GBs=%.3f transport=%s shards=%lld workers=%lld\n",
      op, static_cast<long long>(bytes), us, gigabytes_per_second(s, bytes, us),
      s.transport.c_str(), static_cast<long long>(s.shards), static_cast<long long>(s.workers));
}

// Calls of one kind.
struct Kind {
  const char* op;
  int64_t bytes;  // of a call
  bool both_ways;
  std::function<void(int64_t worker)> call;
  std::vector<double> times = {};  // of all rounds
};

void report_socket(const Settings& s, const Kind& kind, const std::vector<double>& bandwidths) {
  std::printf("ratio op=%s bytes=%lld cohort-ps/socket=%.2f (%s; medians of %zu rounds in turns)\n",
              kind.op, static_cast<long long>(kind.bytes),
              gigabytes_per_second(s, kind.bytes, median(kind.times)) / median(bandwidths),
              kind.both_ways ? "both ways at once" : "one way", bandwidths.size());
}

void measure_in_turns(const Settings& s, std::vector<Kind> kinds) {
  std::optional<SocketPeer> socket;
  if (s.vs_socket) socket.emplace(s.peer_sources);
  std::vector<double> one_way, both_ways;
  for (int64_t round = 0; round < s.rounds; ++round) {
    for (Kind& kind : kinds) {
      const std::vector<double> times = measure(s, kind.call);
      kind.times.insert(kind.times.end(), times.begin(), times.end());
    }
    if (!socket) continue;
    const SocketBandwidth found = socket->run(s.bytes, s.repetitions);
    one_way.push_back(found.one_way);
    both_ways.push_back(2 * found.both_ways);
  }
  for (const Kind& kind : kinds) report(s, kind.op, kind.bytes, kind.times);
  if (!socket) return;
  for (const Kind& kind : kinds) report_socket(s, kind, kind.both_ways ? both_ways : one_way);
}

using Clients = std::vector<std::unique_ptr<ParameterClient>>;

// Where ParameterServerStrategy has them.
Tensor zero_gradient(const TensorSpec& spec) {
  auto memory = parameter_server::memory_to_lend(spec.bytes());
  if (memory == nullptr) return Tensor::zeros(spec.dtype, spec.shape);
  std::memset(memory->data, 0, memory->bytes);
  return Tensor(spec.dtype, spec.shape, std::move(memory));
}

void measure_dense(const Settings& s, const Clients& clients) {
  std::vector<ShardPush> pushes;
  std::vector<std::vector<ShardPull>> pulls(clients.size());
  const int64_t elements = s.bytes / 4;
  const TensorSpec whole{DType::kFloat32, {elements}};
  const optim::Optimizer optimizer = optim::SGD(0.1);
  const Tensor gradient = zero_gradient(whole);
  std::vector<Tensor> targets;
  for (size_t w = 0; w < clients.size(); ++w)
    targets.push_back(Tensor::zeros(whole.dtype, whole.shape));
  for (const RowRange& rows : shard_rows(elements, s.shards)) {
    ShardSpec spec{.name = str("w/part_", pushes.size()),
                   .variable = "w",
                   .whole = whole,
                   .begin = rows.begin,
                   .rows = rows.rows()};
    spec.update = trace_update(optimizer.rule(), spec.spec());
    clients[0]->create(spec, [&] { return Tensor::zeros(DType::kFloat32, {rows.rows()}); });
    pushes.push_back({.shard = spec.name,
                      .gradient = gradient.slice_rows(rows.begin, rows.end),
                      .learning_rate = 0.1});
    for (size_t w = 0; w < clients.size(); ++w)
      pulls[w].push_back(
          {.shard = spec.name, .target = targets[w].slice_rows(rows.begin, rows.end)});
  }
  const auto push = [&](int64_t w) { clients[static_cast<size_t>(w)]->update(pushes, {}); };
  const auto pull = [&](int64_t w) {
    clients[static_cast<size_t>(w)]->update({}, pulls[static_cast<size_t>(w)]);
  };
  // Values that have just changed have to be copied before they are sent.
  const auto push_and_pull = [&](int64_t w) {
    clients[static_cast<size_t>(w)]->update(pushes, pulls[static_cast<size_t>(w)]);
  };
  measure_in_turns(
      s, {{.op = "push", .bytes = s.bytes, .both_ways = false, .call = push},
          {.op = "pull", .bytes = s.bytes, .both_ways = false, .call = pull},
          {.op = "push_pull", .bytes = 2 * s.bytes, .both_ways = true, .call = push_and_pull}});
}

std::string table_part(size_t shard) { return str("table/part_", shard); }

// Random rows of a table, as pushes to its shards and as pulls into `target` from these.
struct RowBatch {
  std::vector<ShardPush> pushes;
  std::vector<ShardPull> pulls;

  RowBatch(const Settings& s, RandomStream& random, const Tensor& gradient, const Tensor& target) {
    const std::vector<RowRange> ranges = shard_rows(s.rows, s.shards);
    std::vector<std::vector<int64_t>> rows(ranges.size());
    for (int64_t i = 0; i < s.batch; ++i) {
      const auto row = static_cast<int64_t>(random.below(static_cast<uint64_t>(s.rows)));
      const auto shard = static_cast<size_t>(shard_of_row(s.rows, s.shards, row));
      rows[shard].push_back(row - ranges[shard].begin);
    }
    int64_t begin = 0;
    for (size_t shard = 0; shard < rows.size(); ++shard) {
      if (rows[shard].empty()) continue;
      const int64_t end = begin + static_cast<int64_t>(rows[shard].size());
      pushes.push_back({.shard = table_part(shard),
                        .gradient = gradient.slice_rows(begin, end),
                        .learning_rate = 0.1,
                        .rows = rows[shard]});
      pulls.push_back({.shard = table_part(shard),
                       .target = target.slice_rows(begin, end),
                       .rows = std::move(rows[shard])});
      begin = end;
    }
  }
};

void create_table(const Settings& s, const TensorSpec& whole, ParameterClient& client) {
  size_t shard = 0;
  for (const RowRange& rows : shard_rows(s.rows, s.shards)) {
    ShardSpec spec{.name = table_part(shard++),
                   .variable = "table",
                   .whole = whole,
                   .begin = rows.begin,
                   .rows = rows.rows()};
    spec.update = trace_update(optim::Adagrad(0.1).rule(), spec.spec());
    client.create(spec, [&] { return Tensor::zeros(whole.dtype, spec.spec().shape); });
  }
}

void report_rows(const Settings& s, const char* op, const std::vector<double>& times) {
  std::printf("cohort-ps op=%s rows=%lld of %lld Mrows_per_s=%.2f\n", op,
              static_cast<long long>(s.batch), static_cast<long long>(s.rows),
              static_cast<double>(s.batch * s.workers) / median(times));
}

// What memory allows: each worker does the same by itself, without locks or calls, to random ones
// of its own rows of one table.
void measure_rows_floor(const Settings& s) {
  const auto columns = static_cast<size_t>(s.columns);
  const auto rows = static_cast<size_t>(s.rows), count = static_cast<size_t>(s.workers);
  std::vector<float> table(rows * columns, 0.0F), squares(rows * columns, 0.1F);
  struct Worker {
    RandomStream random;
    std::vector<float> gradient, target;
  };
  std::vector<Worker> workers;
  for (int64_t w = 0; w < s.workers; ++w)
    workers.push_back({.random = RandomStream(static_cast<uint64_t>(w)),
                       .gradient = std::vector<float>(static_cast<size_t>(s.batch) * columns),
                       .target = std::vector<float>(static_cast<size_t>(s.batch) * columns)});
  const auto each_row = [&](int64_t w, const auto& body) {
    Worker& worker = workers[static_cast<size_t>(w)];
    for (size_t i = 0; i < static_cast<size_t>(s.batch); ++i)
      body(worker, columns * i,
           columns * (worker.random.below(rows / count) * count + static_cast<size_t>(w)));
  };
  report_rows(s, "push_rows_floor", measure(s, [&](int64_t w) {
                each_row(w, [&](const Worker& worker, size_t own, size_t row) {
#pragma omp simd
                  for (size_t c = 0; c < columns; ++c) {
                    const float g = worker.gradient[own + c];
                    squares[row + c] += g * g;
                    table[row + c] -= 0.1F * g / std::sqrt(squares[row + c] + 1e-7F);
                  }
                });
              }));
  report_rows(s, "pull_rows_floor", measure(s, [&](int64_t w) {
                each_row(w, [&](Worker& worker, size_t own, size_t row) {
                  std::copy_n(&table[row], columns, &worker.target[own]);
                });
              }));
}

void measure_rows(const Settings& s, const Clients& clients) {
  const TensorSpec whole{DType::kFloat32, {s.rows, s.columns}};
  create_table(s, whole, *clients[0]);
  const Tensor gradient = Tensor::zeros(DType::kFloat32, {s.batch, s.columns});
  RandomStream random(1);
  constexpr size_t kBatches = 16;
  std::vector<std::vector<RowBatch>> batches(clients.size());
  for (auto& own : batches) {
    const Tensor target(whole.dtype, gradient.shape());
    for (size_t i = 0; i < kBatches; ++i) own.emplace_back(s, random, gradient, target);
  }
  std::vector<size_t> calls(clients.size());
  const auto next = [&](int64_t w) -> const RowBatch& {
    const auto i = static_cast<size_t>(w);
    return batches[i][calls[i]++ % kBatches];
  };
  const auto rows_report = [&](const char* op, const std::vector<double>& times) {
    report(s, op, s.batch * s.columns * 4, times);
    report_rows(s, op, times);
  };
  rows_report("push_rows", measure(s, [&](int64_t w) {
                clients[static_cast<size_t>(w)]->update(next(w).pushes, {});
              }));
  rows_report("pull_rows", measure(s, [&](int64_t w) {
                clients[static_cast<size_t>(w)]->update({}, next(w).pulls);
              }));
}

void run(int argc, char** argv) {
  const Settings s = parse(argc, argv);
  const launcher::ReservedPort port;
  const Address address = Address::parse(port.address());
  const ServerProcess server(address);
  Clients clients;
  for (int64_t w = 0; w < s.workers; ++w)
    clients.push_back(std::make_unique<ParameterClient>(
        address, ParameterClientOptions{.task = str("worker:", w),
                                        .job_id = "benchmark",
                                        .transport = kTransports.at(s.transport)}));
  if (s.rows > 0)
    measure_rows(s, clients);
  else
    measure_dense(s, clients);
  clients[0]->shut_down();
  if (s.rows > 0) measure_rows_floor(s);
}

}  // namespace
}  // namespace cohort::benchmarks

int main(int argc, char** argv) {
  return cohort::run_main([&] { cohort::benchmarks::run(argc, argv); });
}
