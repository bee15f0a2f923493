#pragma once

#include <functional>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "core/graph/graph_function.h"
#include "core/graph/value_map.h"

namespace cohort {

// Rebuilds a function node by node: the skeleton of every pass. The source stays as it is; nodes
// are visited in the source's order, and whatever is not mapped explicitly must be copied before it
// is used.
class Rewriter {
 public:
  explicit Rewriter(const GraphFunction& source)
      : source_(source), values_(source.graph->nodes().size()) {}

  // The new value for a value of the source.
  Value operator()(const Value& old) const;
  std::vector<Value> operator()(const std::vector<Value>& old) const;
  void map(const Value& old, const Value& replacement);
  // Copies a node with mapped inputs and maps its outputs.
  Node& copy(const Node& node) { return copy(node, node.attributes()); }
  // The same with other attributes.
  Node& copy(const Node& node, Attributes attributes);
  // Adds a new node that keeps the name of the source node it stands for.
  Node& add(const Node& origin, std::string_view op, std::vector<Value> inputs,
            Attributes attributes);

  Graph& graph() { return *result_.graph; }
  // The finished function, with the source's outputs mapped.
  GraphFunction finish();

 private:
  const GraphFunction& source_;
  GraphFunction result_;
  std::vector<std::vector<Value>> values_;  // by node of the source, and by output
};

// Who uses each value of a function.
class Users {
 public:
  explicit Users(const GraphFunction& function);
  const std::vector<Node*>& of(const Value& value) const;
  // Those of it and of everything that shares its memory (is_alias).
  std::vector<Node*> of_memory(const Value& value) const;
  // The only node that uses `value`, when that is its only use and it is not an output; otherwise
  // null.
  Node* only_user(const Value& value) const;
  bool is_output(const Value& value) const { return outputs_.count(value) > 0; }

 private:
  ValueMap<std::vector<Node*>> users_;
  ValueSet outputs_;
};

// For each node (by id), the nodes that must run before it: its producers; what the order of
// effects on a resource demands (a write follows the users of every earlier read and every earlier
// write; a read follows the writes before it; a Barrier follows whatever touches a resource before
// it, and reads and writes after it follow it; writes follow the first meeting before them, so that
// none takes effect where another replica has failed earlier); and, because every replica must
// communicate in the same order, the communication before it.
std::vector<std::vector<const Node*>> predecessors(const GraphFunction& function);
// The same, but for the order of communication.
std::vector<std::vector<const Node*>> local_predecessors(const GraphFunction& function);

// By id: whether a node is needed, for an output of the function or for an effect. A write for
// which `dropped` is true has no effect that counts.
std::vector<bool> find_live(const GraphFunction& function,
                            const std::function<bool(const Node&)>& dropped = {});

bool is_write(const Node& node);  // AssignVariable, AssignScatter
bool is_read(const Node& node);   // ReadVariable
// True for nodes whose output is their first input's memory, maybe under another spec: Reshape,
// Identity, StopGradient, CustomGradient.
bool is_alias(const Node& node);
// The node that has made the memory of a value: not an alias, but what the aliases are of.
const Node& origin(const Value& value);
// True for nodes that compute one element of the result from one of each input, and for what costs
// nothing: constants, reads, aliases. Passes may move them about freely.
bool is_light(const Node& node);
bool is_start(const Node& node);  // AllReduceStart
bool is_wait(const Node& node);   // AllReduceWait
// The number of each start, counted from the first.
std::map<const Node*, int> number_starts(const GraphFunction& function);
bool is_barrier(const Node& node);  // Barrier
// True for every node that calls the communicator, a start or a wait too.
bool communicates(const Node& node);
// True for those that make a call which all replicas make together; a wait only ends one.
bool meets_others(const Node& node);
// True for nodes that are over only when every replica has come to this communication: all but
// starts, and the waits for starts with a condition, which may have started nothing.
bool is_meeting(const Node& node);
// The first meeting in the graph's order; null where replicas never meet.
const Node* first_meeting(const Graph& graph);

}  // namespace cohort
