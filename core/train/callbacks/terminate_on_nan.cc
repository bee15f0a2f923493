#include <cmath>

#include "core/train/callbacks.h"
#include "core/train/training.h"

namespace cohort::callbacks {
namespace {

class TerminateOnNaNCallback : public Callback {
 public:
  void on_batch_end(Training& training) override {
    const double loss = training.logs().at("loss");
    if (!std::isfinite(loss))
      training.stop(str("the loss is ", loss, " after step ", training.step()));
  }
};

}  // namespace

CallbackPtr TerminateOnNaN() { return std::make_shared<TerminateOnNaNCallback>(); }

}  // namespace cohort::callbacks
