#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "core/distribute/step_waits.h"
#include "core/distribute/workers.h"
#include "strategies/multi_worker/step_times.h"
#include "strategies/multi_worker/step_watch.h"
#include "strategies/multi_worker/straggler_watch.h"
#include "strategies/multi_worker/worker_link.h"

namespace cohort {

// The workers of a job, over a communicator with one rank for each. An exchange of a few bytes is
// one collective; it also tells of errors, of requests to stop and of the chief's time, and
// compares topics.
class WorkerGroup final : public Workers {
 public:
  // `limit`: how long one worker may wait for the others in one call. `step_limit`: how long before
  // a step, and for values of one, where that is less. `step`: the steps of this worker.
  // `before_failing` is called by fail(), to wake up those who wait for this worker elsewhere.
  WorkerGroup(std::shared_ptr<WorkerLink> link, std::chrono::milliseconds limit,
              std::optional<std::chrono::milliseconds> step_limit,
              std::shared_ptr<const StepWatch> step,
              std::function<void(const Error&)> before_failing);

  int rank() const override { return link_->rank(); }
  int size() const override { return link_->size(); }
  std::string name(int rank) const override { return link_->name(rank); }
  std::vector<std::string> exchange(const std::string& topic, std::string_view value) override;
  std::vector<std::string> exchange_for_step(const std::string& topic,
                                             std::string_view value) override;
  // The same at the beginning of a step. Says on the chief, on standard error, which worker has
  // been slower than the others for some steps, or has a network that was.
  std::vector<std::string> exchange_before_step(const std::string& topic, std::string_view value);
  // From here on, to the next step, this worker computes: what it does before, for all, does not
  // make it slow.
  void begin_computing();
  // Of this worker's steps and calls so far.
  StepWaits waits() const;
  // How often the workers have told each other anything, be it for a variable, a step or a program.
  int64_t meetings() const;
  void broadcast(const std::string& topic, void* data, size_t bytes) override;
  [[noreturn]] void fail(const Error& error) override;
  // As fail(), of a step that changes variables: where some worker may have done so already, the
  // job has failed, for all.
  [[noreturn]] void fail_writing_step(const Error& error);
  bool stop_requested() const override;
  std::chrono::nanoseconds chief_time() const override;

  // Ends every present and later call with `error`. False where there is nothing to wake up:
  // between an error that all workers have thrown and its next call, a worker is in no step either.
  bool abort(const Error& error);
  // `error`, or the failure of the job that is behind it; where there is none although `error`
  // names another worker that cannot be reached, it becomes one. To be thrown.
  Error cause_of(const Error& error);
  // Makes the job fail for all, by `error` unless it has failed before; throws its failure.
  [[noreturn]] void end_job(const Error& error);
  // Whether a call has thrown an error after which none works: the program knows of it.
  bool is_over() const;
  // The error that all workers have thrown together in the last call, if they have. All know it.
  std::optional<Error> shared_error() const;

 private:
  struct Record;
  enum class Patience { kOfCall, kOfStep };  // the limit that counts

  // What this worker fails with, if it does.
  struct Failure {
    const Error* error = nullptr;
    bool of_writing_step = false;
  };

  // What this worker says; `detail` follows where somebody fails, or topics differ.
  Record own_record(const std::string& topic, std::string_view detail, std::string_view value,
                    const Failure& failure, const StepTimes& times) const;
  // What all workers say; throws what is wrong with it.
  std::vector<Record> meet(const std::string& topic, std::string_view value, const Failure& failure,
                           Patience patience = Patience::kOfCall, const StepTimes& times = {});
  void note_stop(const std::vector<Record>& records);
  [[noreturn]] void fail(const Failure& failure);
  std::vector<std::string> gather(std::string_view value, const std::vector<int64_t>& bytes);
  [[noreturn]] void throw_failure(const std::vector<std::string>& details, bool is_final);
  [[noreturn]] void throw_mismatch(const std::vector<Record>& records,
                                   const std::vector<std::string>& topics);
  [[noreturn]] void throw_shared(const Error& error);
  void share(const Error& error);
  std::vector<std::string> values_of(const std::string& topic, std::string_view own,
                                     const std::vector<Record>& records);
  // Of the step that has ended.
  StepTimes step_times();
  void name_stragglers(const std::string& topic, const std::vector<Record>& records);
  void add_waits(const std::vector<Record>& records);
  void run(const std::string& topic, const Call& call, Patience patience = Patience::kOfCall);
  void run_for_step(const Call& call);
  void await_for_step(int64_t operation);
  Error late_for_step();
  bool is_other(const std::string& name) const;
  void set_over();

  const std::shared_ptr<WorkerLink> link_;
  const std::shared_ptr<const StepWatch> step_;
  const std::unique_ptr<Communicator> communicator_;
  const std::optional<std::chrono::milliseconds> step_limit_;
  const std::function<void(const Error&)> before_failing_;
  std::mutex calling_;  // one call at a time; guards what follows
  std::optional<std::chrono::steady_clock::time_point> computes_since_;
  std::chrono::nanoseconds waited_{0};  // in calls, since then
  StragglerWatch slow_workers_, slow_networks_;
  mutable std::mutex mutex_;  // guards what follows
  bool stop_requested_ = false, is_over_ = false;
  std::chrono::nanoseconds chief_time_{0};
  int64_t meetings_ = 0;
  std::optional<Error> shared_error_, final_error_;
  StepWaits waits_;  // without those of the step that step_ still has
};

}  // namespace cohort
