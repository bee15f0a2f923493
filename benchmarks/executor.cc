// Measures what the executor itself costs: a plan of many tiny kernels beside the same kernels in a
// bare loop.
#include <chrono>
#include <cstdio>
#include <memory>

#include "benchmarks/statistics.h"
#include "cohort.h"
#include "core/graph/op.h"
#include "core/kernels/kernel.h"
#include "core/runtime/plan.h"

namespace cohort::benchmarks {
namespace {

struct Settings {
  int64_t nodes, rounds;
};

Settings parse(int argc, char** argv) {
  Flags flags(argc, argv, "Measures the executor's own cost of a node.");
  Settings s;
  s.nodes = flags.integer("nodes", 1000, "nodes of the plan", {.min = 1, .max = 1'000'000});
  s.rounds = flags.integer("rounds", 200, "alternating rounds", {.min = 1});
  flags.finish();
  return s;
}

// A chain of additions of integers, which no pass fuses.
GraphFunction make_chain(int64_t nodes) {
  GraphFunction chain;
  const GraphScope scope(*chain.graph);
  const Value x = chain.graph->add_input("x", {DType::kInt64, {}});
  Value y = x;
  for (int64_t i = 0; i < nodes; ++i) y = y + x;
  chain.outputs = {y};
  return chain;
}

// The kernels of the chain without a plan: a list of calls.
class BareLoop {
 public:
  explicit BareLoop(const GraphFunction& chain) {
    for (const auto& node : chain.graph->nodes()) {
      if (node->op().name == "Input") continue;
      kernels_.push_back(make_kernel({.op = node->op().name,
                                      .inputs = {node->outputs()[0], node->outputs()[0]},
                                      .outputs = node->outputs(),
                                      .attributes = node->attributes()}));
    }
    scratch_ = allocate_host_buffer(kernels_.front()->scratch_bytes());
  }

  void run() {
    const void* const inputs[] = {&sum_, &addend_};
    void* const outputs[] = {&sum_};
    const StepInfo step;
    for (const auto& kernel : kernels_) kernel->run({inputs, outputs, scratch_->data, step});
  }

 private:
  std::vector<std::unique_ptr<Kernel>> kernels_;
  std::shared_ptr<Buffer> scratch_;
  int64_t sum_ = 0, addend_ = 1;
};

void measure(const Settings& s) {
  set_logical_cpus(1, 1);
  const GraphFunction chain = make_chain(s.nodes);
  Plan plan(chain, {});
  if (plan.stats().kernels != s.nodes)
    fail(Code::kInternal, "the plan has ", plan.stats().kernels, " kernels for ", s.nodes,
         " nodes");
  BareLoop loop(chain);
  const std::vector<Tensor> feeds = {Tensor::scalar(int64_t{1})};
  std::vector<Tensor> outputs;
  std::vector<double> planned, bare;
  for (int64_t round = 0; round < s.rounds; ++round) {
    auto begin = std::chrono::steady_clock::now();
    plan.run(feeds, {}, outputs);
    planned.push_back(milliseconds_since(begin));
    begin = std::chrono::steady_clock::now();
    loop.run();
    bare.push_back(milliseconds_since(begin));
  }
  if (outputs[0].data<int64_t>()[0] != s.nodes + 1)
    fail(Code::kInternal, "the sum is ", outputs[0].item());
  const double per_node = 1e6 / static_cast<double>(s.nodes);
  std::printf("cohort-executor nodes=%lld ns_per_node=%.0f kernel_ns=%.0f\n",
              static_cast<long long>(s.nodes), median(planned) * per_node, median(bare) * per_node);
}

}  // namespace
}  // namespace cohort::benchmarks

int main(int argc, char** argv) {
  return cohort::run_main(
      [&] { cohort::benchmarks::measure(cohort::benchmarks::parse(argc, argv)); });
}
