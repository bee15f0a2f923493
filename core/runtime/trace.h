#pragma once

#include <map>
#include <string>
#include <vector>

#include "core/graph/graph_function.h"
#include "core/runtime/replica_group.h"

namespace cohort {

// What shapes_on_replicas was asked about, in order: this signature's own shapes.
using AskedShapes = std::vector<Shape>;

// While alive, the trace that shapes_on_replicas and traced_group speak of on this thread. Graphs
// traced inside it, such as rehearsals of layers, are not part of it.
class TraceScope {
 public:
  // `known` has what each signature of the group asked when it was last traced.
  TraceScope(const Graph& graph, const ReplicaGroup& group,
             const std::map<Signature, AskedShapes, SignatureLess>& known);
  ~TraceScope();
  TraceScope(const TraceScope&) = delete;
  TraceScope& operator=(const TraceScope&) = delete;

  const AskedShapes& asked() const { return asked_; }

 private:
  friend std::vector<Shape> shapes_on_replicas(const Value& value);
  friend const ReplicaGroup& traced_group();
  friend bool is_same_on_replicas(const Value& value);

  const Graph& graph_;
  const ReplicaGroup& group_;
  const std::map<Signature, AskedShapes, SignatureLess>& known_;
  AskedShapes asked_;
  TraceScope* previous_;
};

// A line for each node of `graph` that communicates, in order: what has to be equal on all
// replicas.
std::vector<std::string> communication_of(const Graph& graph);

}  // namespace cohort
