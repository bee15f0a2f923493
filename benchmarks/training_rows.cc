// Synchronous training that is disturbed, whose weights tell whether it goes on as if nothing had
// happened.
#include <chrono>
#include <csignal>
#include <string>
#include <vector>

#include "benchmarks/fault_rows.h"
#include "core/base/error.h"

namespace cohort::benchmarks {
namespace {

std::string training_settings(const FaultSettings& s) {
  return str(" workers=", s.training.workers, " pace_ms=", s.training.pace.count());
}
std::string kill_settings(const FaultSettings& s) {
  const auto seconds = [](std::chrono::nanoseconds time) {
    return std::chrono::duration<double>(time).count();
  };
  return str(training_settings(s), " kill_s=", seconds(s.training.kill_interval),
             " checkpoint_s=", seconds(s.training.save_interval));
}

// At any moment of a step, when a window of time has passed.
TrainingFault draw_fault(const FaultSettings& s, int worker, RandomStream& random) {
  return {.worker = worker, .after = s.window + draw(s.training.pace, random)};
}

Figures recover(const FaultSettings& s, const TrainingFault& fault, int signal) {
  const Recovery found = lose_worker(s.training, fault, signal);
  return {{"named_ms", found.named_ms},
          {"named_ms_at_most", signal == SIGSTOP ? 6000 : 1000},
          {"recovered_ms", found.recovered_ms},
          {"recovered_ms_at_most", 10'000},
          {"steps_lost", static_cast<double>(found.steps_lost)}};
}

Figures kill_mirrored_worker(const FaultSettings& s, RandomStream& random) {
  const int victim = 1 + draw(s.training.workers - 1, random);
  return recover(s, draw_fault(s, victim, random), SIGKILL);
}

Figures kill_chief(const FaultSettings& s, RandomStream& random) {
  return recover(s, draw_fault(s, 0, random), SIGKILL);
}

Figures freeze_worker(const FaultSettings& s, RandomStream& random) {
  const int victim = draw(s.training.workers, random);
  return recover(s, draw_fault(s, victim, random), SIGSTOP);
}

Figures preempt(const FaultSettings& s, RandomStream& random) {
  const int victim = draw(s.training.workers, random);
  const Preemption found = preempt_worker(s.training, draw_fault(s, victim, random));
  return {
      {"ended_ms", found.ended_ms}, {"step_ms", found.step_ms},
      {"save_ms", found.save_ms},   {"beside_ms", found.ended_ms - found.step_ms - found.save_ms},
      {"beside_ms_at_most", 2000},  {"steps_lost", static_cast<double>(found.steps_lost)}};
}

// The kill comes in the middle, at any moment between two backups.
Figures effective_time(const FaultSettings& s, RandomStream& random) {
  const int victim = draw(s.training.workers, random);
  const TrainingFault fault = {
      .worker = victim,
      .after = s.training.kill_interval / 2 + draw(s.training.save_interval, random)};
  const TimeSpent spent = train_with_a_kill(s.training, fault);
  return {{"ettr", spent.effective()},
          {"ettr_at_least", 0.95},
          {"total_s", spent.total()},
          {"kept_s", spent.kept},
          {"lost_s", spent.lost},
          {"between_s", spent.between},
          {"ending_s", spent.ending},
          {"starting_s", spent.starting},
          {"steps_lost", static_cast<double>(spent.steps_lost)}};
}

}  // namespace

std::vector<FaultRow> training_rows() {
  return {{"mirrored_worker_killed", "", kill_mirrored_worker, training_settings},
          {"chief_killed", "", kill_chief, training_settings},
          {"worker_frozen", "", freeze_worker, training_settings},
          {"preempted", "", preempt, training_settings},
          {"ettr", "", effective_time, kill_settings}};
}

}  // namespace cohort::benchmarks
