// A program for all roles of a job with parameter servers, to be killed: TF_CONFIG says which it
// is.
#include <cstdio>
#include <unistd.h>

#include "cohort.h"

namespace cohort {
namespace {

// Tells whoever waits where training is.
class Line final : public Callback {
 public:
  explicit Line(std::string task) : task_(std::move(task)) {}
  void on_batch_end(Training&) override { say("step"); }
  void on_epoch_end(Training&, Logs& logs) override {
    lost_ += logs.contains("lost_updates") ? logs.at("lost_updates") : 0;
  }
  void say(const std::string& what) const {
    std::printf("%s %s\n", task_.c_str(), what.c_str());
    std::fflush(stdout);
  }
  double lost() const { return lost_; }

 private:
  std::string task_;
  double lost_ = 0;
};

data::Dataset parity(int64_t rows) {
  Tensor ids(DType::kInt32, {rows, 2}), label(DType::kFloat32, {rows, 1});
  RandomStream random(5);
  for (int64_t i = 0; i < rows; ++i) {
    const auto a = static_cast<int32_t>(random.below(50)),
               b = static_cast<int32_t>(random.below(50));
    ids.data<int32_t>()[2 * i] = a;
    ids.data<int32_t>()[2 * i + 1] = b;
    label.data<float>()[i] = static_cast<float>(a % 2 + b % 3);
  }
  return data::from_tensor_slices({{"ids", ids}, {"label", label}});
}

void run(int argc, char** argv) {
  Flags flags(argc, argv, "A task of a job with parameter servers.");
  const auto epochs = flags.integer("epochs", 20, "for each worker", {.min = 0});
  const auto max_staleness = flags.integer("max_staleness", -1, "-1: any", {.min = -1});
  const auto snapshots = flags.text("snapshots", "", "folder of the servers");
  const bool log = flags.boolean("log", false, "servers lose no change when they are killed");
  flags.finish();
  std::printf("pid=%d\nstarted\n", getpid());
  std::fflush(stdout);
  set_global_seed(1);
  ParameterServerStrategy::Options options{.snapshot_folder = snapshots,
                                           .snapshot_interval = std::chrono::milliseconds(50)};
  if (log) options.server_log = ServerLog::kWritten;
  if (max_staleness >= 0) options.max_staleness = max_staleness;
  if (run_parameter_server(options)) return;
  ParameterServerStrategy strategy(options);
  const auto scope = strategy.scope();
  const auto line = std::make_shared<Line>(strategy.workers().name(strategy.workers().rank()));
  auto model = nn::Sequential({nn::Embedding(50, 8), nn::Flatten(), nn::Dense(1)});
  model.compile({.optimizer = optim::Adagrad(0.2), .loss = losses::MeanSquaredError()});
  const auto data = parity(256);
  const History history = model.fit(
      data.batch(8), {.epochs = epochs, .callbacks = {line}, .verbose = Verbose::kSilent});
  line->say(str("iterations=", model.optimizer().iterations()->value().item()));
  line->say(str("lost_by_report=", line->lost()));
  line->say(str("loss=", model.evaluate(data.batch(64)).at("loss")));
}

}  // namespace
}  // namespace cohort

int main(int argc, char** argv) {
  return cohort::run_main([&] { cohort::run(argc, argv); });
}
