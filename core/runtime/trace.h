#pragma once

#include <map>
#include <string>
#include <vector>

#include "core/graph/graph_function.h"
#include "core/runtime/computation.h"
#include "core/runtime/replica_group.h"

namespace cohort {

// What a trace asks about a value of its own that other replicas have, too, with its own answer:
// the value's shape, or what computes it (Computations).
struct Question {
  Shape shape = {};
  uint64_t computation = 0;

  bool operator==(const Question&) const = default;
};
using Questions = std::vector<Question>;
// What each signature of a group asked when it was last traced, in order.
using Known = std::map<Signature, Questions, SignatureLess>;

// While alive, the trace that shapes_on_replicas, is_same_on_replicas and traced_group speak of on
// this thread. Graphs traced inside it, such as rehearsals of layers, are not part of it.
class TraceScope {
 public:
  TraceScope(const Graph& graph, const ReplicaGroup& group, const Known& known);
  ~TraceScope();
  TraceScope(const TraceScope&) = delete;
  TraceScope& operator=(const TraceScope&) = delete;

  const Questions& asked() const { return asked_; }

 private:
  friend std::vector<Shape> shapes_on_replicas(const Value& value);
  friend const ReplicaGroup& traced_group();
  friend bool is_same_on_replicas(const Value& value);

  // Whether this thread's trace is the one that `value` is part of.
  static bool is_of(const Value& value);
  // The answers of all replicas, in their order; the own one where another's is not known yet.
  Questions ask(const Question& own);

  const Graph& graph_;
  const ReplicaGroup& group_;
  const Known& known_;
  Computations computations_;
  Questions asked_;
  TraceScope* previous_;
};

// Whether this thread traces a function; a graph alone, as the rehearsal of a layer, is none.
bool is_tracing_function();

// A line for each node of `graph` that communicates, or writes a variable whose copies are kept
// equal, in order: what has to be the same on all replicas.
std::vector<std::string> common_effects(const Graph& graph);

// How those of two replicas differ, which are called by these names: "as number 3 worker:0 does
// AllReduce ... and worker:1 nothing"; empty where they do not.
std::string difference_of_effects(std::string_view name_a, const std::vector<std::string>& a,
                                  std::string_view name_b, const std::vector<std::string>& b);

}  // namespace cohort
