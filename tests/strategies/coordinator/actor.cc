// A task of its own process, to be killed: a worker, or a coordinator that schedules without end.
#include <cstdlib>
#include <iostream>
#include <string>
#include <thread>

#include "core/base/program.h"
#include "core/ops/math_ops.h"
#include "strategies/coordinator/coordinator.h"

namespace cohort {
namespace {

constexpr std::chrono::seconds kOrphanedAfter(2), kUnclaimedAfter(30);

// Ten numbers for each worker, without end.
data::Dataset numbers(const InputContext& context) {
  return data::range(10)
      .shard(context.num_input_pipelines, context.input_pipeline_id)
      .repeat()
      .batch(1);
}

// Has no first element.
data::Dataset stuck(const InputContext&) {
  return data::generator([]() -> data::NextFunction {
    std::this_thread::sleep_for(std::chrono::hours(1));
    return [] { return std::nullopt; };
  });
}

void serve(const std::string& address, const std::string& task) {
  register_dataset("numbers", numbers);
  register_dataset("stuck", stuck);
  WorkerServer server(Address::parse(address), {.job_id = "job",
                                                .task = task,
                                                .orphaned_after = kOrphanedAfter,
                                                .unclaimed_after = kUnclaimedAfter});
  std::cout << "serving" << std::endl;
  server.wait();
  std::cout << "ended" << std::endl;
}

void schedule(const std::string& address) {
  ClusterCoordinator coordinator(ClusterSpec(ClusterSpec::Jobs{{"worker", {address}}}),
                                 {.job_id = "job"});
  const Function doubled = function([](Value x) { return x + x; });
  for (;;) {
    coordinator.schedule(doubled, 1.0f).get();
    std::cout << "executed" << std::endl;
  }
}

}  // namespace
}  // namespace cohort

int main(int argc, char** argv) {
  return cohort::run_main([&] {
    const std::string role = argc > 1 ? argv[1] : "";
    if (role == "worker" && argc == 4) return cohort::serve(argv[2], argv[3]);
    if (role == "coordinator" && argc == 3) return cohort::schedule(argv[2]);
    cohort::invalid("usage: actor worker ADDRESS TASK | coordinator ADDRESS");
  });
}
