#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/graph/graph_function.h"
#include "strategies/coordinator/messages.h"
#include "strategies/parameter_server/known_rules.h"

namespace cohort::coordinator {

class WorkerCopies;

// A function as workers know it, for one signature.
struct Definition {
  uint64_t function = 0;
  CallSignature signature;
  std::vector<Tensor> graphs;                 // as Define has them
  std::vector<std::string> server_variables;  // that it uses, packed
  Precision precision = Precision::kFloat32;
};

// A function that is scheduled, with what has been traced of it. Thread-safe.
class FunctionFamily {
 public:
  // Traces, or finds what has been traced before: the graph of each replica, in order.
  using Trace = std::function<std::vector<const GraphFunction*>(const CallSignature& signature)>;
  // `tracing` is held while `trace` is called, and has to be that of all functions whose bodies may
  // make the same variables.
  FunctionFamily(uint64_t id, std::string name, Trace trace, std::shared_ptr<WorkerCopies> copies,
                 std::shared_ptr<std::recursive_mutex> tracing,
                 Precision precision = Precision::kFloat32)
      : id_(id),
        name_(std::move(name)),
        trace_(std::move(trace)),
        copies_(std::move(copies)),
        tracing_(std::move(tracing)),
        precision_(precision) {}

  uint64_t id() const { return id_; }
  const std::string& name() const { return name_; }
  // Traced when it is asked for first; throws what the body throws, and kInvalidArgument for a
  // variable that workers cannot have. Stays as long as the family.
  std::shared_ptr<const Definition> definition(const CallSignature& signature);
  int64_t trace_us() const { return trace_us_; }
  // Whether what has been traced of it uses variables of which each worker has its own.
  bool keeps_on_workers() const { return keeps_on_workers_; }
  // Whether that sums gradients on workers over several calls.
  bool sums_on_workers() const { return sums_on_workers_; }
  // Whether that uses a resource that counts what waits in such a sum.
  bool is_count(uint64_t resource) const;
  // Whether a variable that has been defined for workers has other shards by now: an optimizer has
  // taken it over. Does not wait for servers.
  bool is_outdated() const;

 private:
  // Null where it has not been traced.
  std::shared_ptr<const Definition> find(const CallSignature& signature) const;

  const uint64_t id_;
  const std::string name_;
  const Trace trace_;
  const std::shared_ptr<WorkerCopies> copies_;
  // Recursive: a body may have another function traced.
  const std::shared_ptr<std::recursive_mutex> tracing_;
  const Precision precision_;
  std::atomic<int64_t> trace_us_ = 0;
  std::atomic<bool> keeps_on_workers_ = false, sums_on_workers_ = false;
  mutable std::mutex mutex_;  // guards what follows; not held while it is traced
  std::set<uint64_t> counts_;
  parameter_server::KnownRules told_;  // of the variables that have been defined for workers
  std::vector<std::shared_ptr<const Definition>> definitions_;
};

// The functions of a coordinator, which are traced one at a time: their bodies share layers and
// optimizers, and make variables in an order that names follow from. Thread-safe.
class FunctionTable {
 public:
  // `copies` are of the variables that functions use.
  explicit FunctionTable(std::shared_ptr<WorkerCopies> copies) : copies_(std::move(copies)) {}

  // The family of a function, a new one where that of before is outdated; `identity` is an address
  // that belongs to the function alone as long as `trace` lives.
  std::shared_ptr<FunctionFamily> family(const void* identity, const std::string& name,
                                         const FunctionFamily::Trace& trace,
                                         Precision precision = Precision::kFloat32);
  int64_t trace_us() const;

 private:
  const std::shared_ptr<WorkerCopies> copies_;
  const std::shared_ptr<std::recursive_mutex> tracing_ = std::make_shared<std::recursive_mutex>();
  mutable std::mutex mutex_;
  std::map<const void*, std::shared_ptr<FunctionFamily>> by_identity_;
  std::vector<std::shared_ptr<FunctionFamily>> families_;  // by number, from 1
};

}  // namespace cohort::coordinator
