#pragma once

#include <map>
#include <set>
#include <utility>
#include <vector>

#include "core/graph/graph_function.h"

namespace cohort {

// Rebuilds a function node by node: the skeleton of every pass. The source stays as it is; nodes
// are visited in the source's order, and whatever is not mapped explicitly must be copied before it
// is used.
class Rewriter {
 public:
  explicit Rewriter(const GraphFunction& source) : source_(source) {}

  // The new value for a value of the source.
  Value operator()(const Value& old) const;
  std::vector<Value> operator()(const std::vector<Value>& old) const;
  void map(const Value& old, const Value& replacement) { values_[old] = replacement; }
  // Copies a node with mapped inputs and maps its outputs.
  Node& copy(const Node& node);
  // Adds a new node that keeps the name of the source node it stands for.
  Node& add(const Node& origin, std::string_view op, std::vector<Value> inputs,
            Attributes attributes);

  Graph& graph() { return *result_.graph; }
  // The finished function, with the source's outputs mapped.
  GraphFunction finish();

 private:
  const GraphFunction& source_;
  GraphFunction result_;
  std::map<Value, Value> values_;
};

// Who uses each value of a function.
class Users {
 public:
  explicit Users(const GraphFunction& function);
  const std::vector<Node*>& of(const Value& value) const;
  // The only node that uses `value`, when that is its only use and it is not an output; otherwise
  // null.
  Node* only_user(const Value& value) const;

 private:
  std::map<Value, std::vector<Node*>> users_;
  std::set<Value> outputs_;
};

// For each node (by id), the nodes that must run before it: its producers, and what the order of
// effects on a resource demands (a write follows the users of every earlier read and every earlier
// write; a read follows the writes before it).
std::vector<std::vector<const Node*>> predecessors(const GraphFunction& function);

bool is_write(const Node& node);  // AssignVariable, AssignScatterAdd
bool is_read(const Node& node);   // ReadVariable
// True for nodes whose output is their input's memory under another spec: Reshape, Identity,
// StopGradient.
bool is_alias(const Node& node);

}  // namespace cohort
