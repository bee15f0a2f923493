#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "benchmarks/attacks.h"
#include "benchmarks/fault_tasks.h"
#include "benchmarks/training_faults.h"
#include "core/base/random.h"

// What the program `faults` measures: each row is a line of what it prints.
namespace cohort::benchmarks {

struct FaultSettings {
  FaultJobOptions job;
  AttackOptions attack;
  TrainingFaultOptions training;
  std::chrono::nanoseconds window;  // before and after a fault
};

// What one round has found, by name, the same names in each.
using Figures = std::vector<std::pair<std::string, double>>;

struct FaultRow {
  std::string name, more;  // the latter is printed behind the name
  // One round, with processes of its own; victims and moments are drawn. Errors are those of
  // TaskGroup, kDataLoss for counts or weights that are wrong, and kPermissionDenied where
  // strangers were let in.
  std::function<Figures(const FaultSettings&, RandomStream&)> measure;
  std::function<std::string(const FaultSettings&)> settings;  // that it was measured with
};

// To be measured while this process has one thread.
//
// Training with parameter servers, where a worker or a server is killed, or a worker is slow.
std::vector<FaultRow> parameter_server_rows();
// Those who are served while a client or strangers attack.
std::vector<FaultRow> attack_rows();
// Synchronous training by several workers, under cohort-run. What is wanted of a figure stands
// behind it.
std::vector<FaultRow> training_rows();

// One of `count`.
inline int draw(int count, RandomStream& random) {
  return static_cast<int>(random.below(static_cast<uint64_t>(count)));
}
// A part of `whole`, so that what comes next happens anywhere in it.
inline std::chrono::nanoseconds draw(std::chrono::nanoseconds whole, RandomStream& random) {
  return std::chrono::nanoseconds(random.below(static_cast<uint64_t>(whole.count())));
}

inline void append(Figures& figures, const Figures& more) {
  figures.insert(figures.end(), more.begin(), more.end());
}

}  // namespace cohort::benchmarks
