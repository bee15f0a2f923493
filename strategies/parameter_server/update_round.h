#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/tensor/tensor.h"
#include "strategies/parameter_server/change.h"
#include "strategies/parameter_server/row_gradient.h"

namespace cohort::parameter_server {

struct IncomingPush;

// Of a gradient: weights are added up as float64, in which numbers of rows up to here are exact.
inline constexpr double kMaxWeight = 0x1p53;

// Of synchronous training: what has come for a shard's next update, and of whom. Not synchronised.
class UpdateRound {
 public:
  using Time = std::chrono::steady_clock::time_point;
  // Who has come, with its last mark before that; nothing where it had none.
  using Tasks = std::map<std::string, std::optional<Mark>>;

  const Tasks& tasks() const { return tasks_; }
  int size() const { return static_cast<int>(tasks_.size()); }
  bool has(const std::string& task) const { return tasks_.contains(task); }
  // Of those who have come, the ones whose gradients weigh something: one of no rows is none.
  int weighing() const { return weighing_; }
  // Whether its gradient can be added to those that are there: all are dense, or none is.
  bool fits(const IncomingPush& push) const;
  // A task comes with this; it is then given to add(), or to sum() as the last.
  void enter(const IncomingPush& push, const std::optional<Mark>& before);
  // Takes that back.
  void leave(const IncomingPush& push);
  void add(const IncomingPush& push, Time now);
  // When the first one was added, if there is one, and the last.
  std::optional<Time> began() const { return began_; }
  Time latest() const { return latest_; }
  // All that has come, with the gradient of `last`, where it is not null, which is written over: as
  // update `number`, or the later one that somebody has named. It is `wanted` times the mean by
  // weights, whether fewer have come or more: of equal weights the sum. Where none weighs anything,
  // all count alike; integers are added up as they are.
  AppliedGradient sum(IncomingPush* last, uint64_t number, int wanted) const;

 private:
  // With another one of this weight, the size()th.
  struct Factors {
    double before, present;  // of what had come, and of what it brings
  };
  Factors factors(double weight) const;
  // By rows.
  RowGradient combined(const IncomingPush* last) const;

  Tasks tasks_;
  int weighing_ = 0;
  std::vector<Tensor> gradients_;                          // dense ones are added up in the first
  std::vector<std::optional<std::vector<int64_t>>> rows_;  // of each
  std::vector<double> weights_;                            // likewise
  double weight_ = 0;                                      // of all
  double learning_rate_ = 0;
  uint64_t step_ = 0;
  std::optional<Time> began_;
  Time latest_;
};

// For whom all others wait: watches updates to which one task has contributed last. Not
// synchronised.
class LastContributor {
 public:
  using Time = UpdateRound::Time;

  // `task` has completed an update, after all others had waited for it alone for so long. Returns
  // which part of the time of the last updates they have waited for it, once for several in a row;
  // else 0.
  double count(const std::string& task, Time::duration alone);

 private:
  std::string task_;
  int updates_ = 0;
  Time since_;
  Time::duration alone_{0};
};

}  // namespace cohort::parameter_server
