// A task of its own process, to be killed: a server, or a worker that counts.
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <string>

#include "core/base/program.h"
#include "core/optim/optimizers.h"
#include "strategies/parameter_server/client.h"
#include "strategies/parameter_server/server.h"
#include "tests/strategies/parameter_server/transport.h"

namespace cohort {
namespace {

constexpr int64_t kElements = 1 << 18;

void serve(const Address& address, const std::string& folder, int snapshot_milliseconds,
           ServerLog log, int grace_milliseconds) {
  ParameterServer server(address,
                         {.job_id = "job",
                          .snapshot_folder = folder,
                          .snapshot_interval = std::chrono::milliseconds(snapshot_milliseconds),
                          .log = log,
                          .orphaned_after = std::chrono::seconds(20),
                          .worker_grace = std::chrono::milliseconds(grace_milliseconds)});
  std::cout << "serving" << std::endl;
  server.wait();
}

ShardSpec counter(const TensorSpec& spec) {
  return {.name = "counter",
          .variable = "counter",
          .whole = spec,
          .rows = kElements,
          .update = trace_update(optim::SGD(1.0).rule(), spec)};
}

// Each push adds 1 to every element; each acknowledged one is a line.
void count(const Address& address, const std::string& task, int pushes) {
  ParameterClient client(address,
                         {.task = task, .job_id = "job", .transport = testing::transport()});
  const TensorSpec spec{DType::kFloat32, {kElements}};
  client.create(counter(spec), [&] { return Tensor::zeros(spec.dtype, spec.shape); });
  const Tensor gradient = Tensor::full(spec.dtype, spec.shape, -1);
  for (int i = 0; i < pushes; ++i) {
    client.push({.shard = "counter", .gradient = gradient, .learning_rate = 1});
    std::cout << "acknowledged" << std::endl;
  }
}

// Rounds of synchronous training in which each gradient adds 1; each is a line. Then it leaves.
void take_rounds(const Address& address, const std::string& task, int rounds) {
  ParameterClient client(address,
                         {.task = task, .job_id = "job", .transport = testing::transport()});
  const TensorSpec spec{DType::kFloat32, {kElements}};
  client.create(counter(spec), [&] { return Tensor::zeros(spec.dtype, spec.shape); });
  const Tensor gradient = Tensor::full(spec.dtype, spec.shape, -1);
  Tensor value(spec.dtype, spec.shape);
  uint64_t awaited = 0;
  for (int i = 0; i < rounds; ++i) {
    client.pull({.shard = "counter", .target = value, .at_least = awaited});
    const ShardPushed pushed =
        client.push({.shard = "counter", .gradient = gradient, .learning_rate = 1});
    awaited = pushed.outcome == PushOutcome::kCounted ? pushed.version + 1 : 0;
    std::cout << "round" << std::endl;
  }
  client.leave();
}

}  // namespace
}  // namespace cohort

int main(int argc, char** argv) {
  return cohort::run_main([&] {
    const std::string role = argc >= 4 && argc <= 7 ? argv[1] : "";
    const auto address = cohort::Address::parse(role.empty() ? "" : argv[2]);
    if (role == "server")
      cohort::serve(address, argv[3], argc > 4 ? std::atoi(argv[4]) : 30,
                    argc > 5 && argv[5] != std::string("none") ? cohort::ServerLog::kWritten
                                                               : cohort::ServerLog::kNone,
                    argc > 6 ? std::atoi(argv[6]) : 100);
    if (role == "worker") cohort::count(address, argv[3], std::atoi(argv[4]));
    if (role == "rounds") cohort::take_rounds(address, argv[3], std::atoi(argv[4]));
  });
}
