#include "core/distribute/check_replicas.h"

#include "core/train/callbacks.h"
#include "core/train/training.h"

namespace cohort::callbacks {
namespace {

class CheckReplicasCallback final : public Callback {
 public:
  explicit CheckReplicasCallback(const CheckReplicasOptions& options) : options_(options) {}

  void on_train_begin(Training& training) override { check(training); }
  void on_batch_end(Training& training) override {
    if (training.total_steps() % options_.every_steps == 0) check(training);
  }
  void on_train_end(Training& training) override { check(training); }

 private:
  static void check(Training& training) {
    const Model& model = training.model();
    try {
      check_replicas(model.strategy(), model.checkpoint_variables());
    } catch (const Error& error) {
      throw error.with_context(str("CheckReplicas: after step ", training.total_steps()));
    }
  }

  const CheckReplicasOptions options_;
};

}  // namespace

CallbackPtr CheckReplicas(const CheckReplicasOptions& options) {
  if (options.every_steps < 1)
    invalid("CheckReplicas: every_steps must be at least 1, got ", options.every_steps);
  return std::make_shared<CheckReplicasCallback>(options);
}

}  // namespace cohort::callbacks
