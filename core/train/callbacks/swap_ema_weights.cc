#include "core/train/callbacks.h"
#include "core/train/training.h"

namespace cohort::callbacks {
namespace {

class SwapEMAWeightsCallback final : public Callback {
 public:
  void on_train_begin(Training& training) override {
    if (!training.model().optimizer().options().ema)
      fail(Code::kFailedPrecondition,
           "SwapEMAWeights: the optimizer keeps no averages; give it ema, as in "
           "optim::Adam(0.001, {.ema = optim::EmaOptions{}})");
  }
  void on_validation_begin(Training& training) override { swap(training.model()); }
  void on_validation_end(Training& training) override { swap(training.model()); }

 private:
  static void swap(const Model& model) {
    model.optimizer().swap_averages(model.trainable_variables());
  }
};

}  // namespace

CallbackPtr SwapEMAWeights() { return std::make_shared<SwapEMAWeightsCallback>(); }

}  // namespace cohort::callbacks
