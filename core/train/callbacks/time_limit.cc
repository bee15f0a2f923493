#include "core/train/callbacks.h"
#include "core/train/training.h"

namespace cohort::callbacks {
namespace {

class TimeLimitCallback final : public Callback {
 public:
  explicit TimeLimitCallback(std::chrono::duration<double> limit) : limit_(limit) {}

  void on_batch_end(Training& training) override { look(training); }
  // After validation, so that another epoch is not begun for the sake of one batch.
  void on_epoch_end(Training& training, Logs&) override { look(training); }

 private:
  void look(Training& training) const {
    if (!training.stopping() && training.elapsed() > limit_)
      training.stop(str("the time limit of ", limit_.count(), " s is over"));
  }

  const std::chrono::duration<double> limit_;
};

}  // namespace

CallbackPtr TimeLimit(std::chrono::duration<double> limit) {
  if (!(limit.count() > 0))
    invalid("TimeLimit: the limit must be more than 0 s, got ", limit.count());
  return std::make_shared<TimeLimitCallback>(limit);
}

}  // namespace cohort::callbacks
