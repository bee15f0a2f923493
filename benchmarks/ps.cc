// Measures pushes to a parameter server, with their update, and pulls from it, on one host.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

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
  int64_t bytes, shards, workers, repetitions, rows, columns, batch;
  std::string transport;
};

Settings parse(int argc, char** argv) {
  Flags flags(argc, argv, "Measures pushes to a parameter server and pulls from it.");
  Settings s;
  s.bytes = flags.integer("bytes", 104'857'600, "bytes that a call moves, of 4 each", {.min = 4});
  s.shards = flags.integer("shards", 0, "of these bytes; 0: of a MiB or two each", {.min = 0});
  s.workers =
      flags.integer("workers", 1, "threads with a client of their own", {.min = 1, .max = 64});
  s.repetitions = flags.integer("repetitions", 0,
                                "calls of each kind; 0: a GiB altogether, within "
                                "reason",
                                {.min = 0});
  s.rows = flags.integer("rows", 0, "of a table instead: its rows", {.min = 0});
  s.columns = flags.integer("columns", 64, "of the table", {.min = 1});
  s.batch = flags.integer("batch", 4096, "random rows in each call", {.min = 1});
  s.transport =
      flags.text("transport", "memory", "memory (shared), direct or grpc (both over loopback TCP)");
  flags.finish();
  if (!kTransports.contains(s.transport))
    invalid("--transport is memory, direct or grpc, got ", s.transport);
  if (s.bytes % 4 != 0) invalid("--bytes must be a multiple of 4, got ", s.bytes);
  const int64_t moved = s.rows > 0 ? s.batch * s.columns * 4 : s.bytes;
  if (s.repetitions == 0) s.repetitions = std::clamp<int64_t>((int64_t{1} << 30) / moved, 11, 2000);
  constexpr int64_t kUsualShardBytes = 3 << 19;
  if (s.shards == 0) s.shards = std::max<int64_t>(1, s.bytes / kUsualShardBytes);
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

void report(const Settings& s, const char* op, int64_t bytes, const std::vector<double>& times) {
  const double us = median(times);
  std::printf(
      "cohort-ps op=%s transport=%s bytes=%lld shards=%lld workers=%lld median_us=%.1f "
      "GBs=%.3f\n",
      op, s.transport.c_str(), static_cast<long long>(bytes), static_cast<long long>(s.shards),
      static_cast<long long>(s.workers), us, static_cast<double>(bytes * s.workers) / us / 1e3);
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
  report(s, "push", s.bytes,
         measure(s, [&](int64_t w) { clients[static_cast<size_t>(w)]->update(pushes, {}); }));
  report(s, "pull", s.bytes, measure(s, [&](int64_t w) {
           clients[static_cast<size_t>(w)]->update({}, pulls[static_cast<size_t>(w)]);
         }));
  // Values that have just changed have to be copied before they are sent.
  report(s, "push_pull", 2 * s.bytes, measure(s, [&](int64_t w) {
           clients[static_cast<size_t>(w)]->update(pushes, pulls[static_cast<size_t>(w)]);
         }));
}

void measure_rows(const Settings& s, const Clients& clients) {
  const TensorSpec whole{DType::kFloat32, {s.rows, s.columns}};
  ShardSpec spec{.name = "table", .variable = "table", .whole = whole, .rows = s.rows};
  spec.update = trace_update(optim::Adagrad(0.1).rule(), whole);
  clients[0]->create(spec, [&] { return Tensor::zeros(whole.dtype, whole.shape); });
  const Tensor values = Tensor::zeros(DType::kFloat32, {s.batch, s.columns});
  RandomStream random(1);
  const auto draw = [&] {
    std::vector<int64_t> rows(static_cast<size_t>(s.batch));
    for (int64_t& row : rows)
      row = static_cast<int64_t>(random.below(static_cast<uint64_t>(s.rows)));
    return rows;
  };
  std::vector<std::vector<int64_t>> batches;
  for (int i = 0; i < 16; ++i) batches.push_back(draw());
  std::vector<size_t> calls(clients.size());
  const auto next = [&](int64_t w) -> const std::vector<int64_t>& {
    return batches[calls[static_cast<size_t>(w)]++ % batches.size()];
  };
  const int64_t bytes = s.batch * s.columns * 4;
  const auto rows_report = [&](const char* op, const std::vector<double>& times) {
    report(s, op, bytes, times);
    std::printf("cohort-ps op=%s rows=%lld of %lld Mrows_per_s=%.2f\n", op,
                static_cast<long long>(s.batch), static_cast<long long>(s.rows),
                static_cast<double>(s.batch * s.workers) / median(times));
  };
  rows_report("push_rows", measure(s, [&](int64_t w) {
                clients[static_cast<size_t>(w)]->push(
                    {.shard = "table", .gradient = values, .learning_rate = 0.1, .rows = next(w)});
              }));
  std::vector<Tensor> targets;
  for (size_t w = 0; w < clients.size(); ++w) targets.emplace_back(whole.dtype, values.shape());
  rows_report("pull_rows", measure(s, [&](int64_t w) {
                const auto i = static_cast<size_t>(w);
                clients[i]->pull({.shard = "table", .target = targets[i], .rows = next(w)});
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
}

}  // namespace
}  // namespace cohort::benchmarks

int main(int argc, char** argv) {
  return cohort::run_main([&] { cohort::benchmarks::run(argc, argv); });
}
