#include "core/train/callbacks.h"
#include "core/train/callbacks/divergence.h"

namespace cohort::callbacks {
namespace {

class TerminateOnNaNCallback : public Callback {
 public:
  void on_batch_end(Training& training) override {
    if (has_diverged(training))
      fail(Code::kOutOfRange, "the loss is ", training.logs().at("loss"), " after step ",
           training.step());
  }
};

}  // namespace

CallbackPtr TerminateOnNaN() { return std::make_shared<TerminateOnNaNCallback>(); }

}  // namespace cohort::callbacks
