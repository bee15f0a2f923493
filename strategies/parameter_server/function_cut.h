#pragma once

#include <memory>
#include <set>
#include <vector>

#include "core/graph/graph_function.h"
#include "strategies/parameter_server/known_rules.h"
#include "strategies/parameter_server/own_variable.h"
#include "strategies/parameter_server/server_variable.h"

namespace cohort::parameter_server {

using ServerVariablePtr = std::shared_ptr<ServerVariable>;

// A lookup of rows of a table that is not used otherwise.
struct Lookup {
  size_t table = 0;  // among FunctionCut::tables
  const Node* gather = nullptr;
};

// What is sent to a server variable after the function: a gradient, or what is added.
struct Sending {
  // The sum of these values, some of them with the sign changed.
  struct Term {
    Value value;
    bool is_negative = false;
  };
  ServerVariablePtr variable;
  std::vector<Term> terms;
  Value indices;        // of rows, with one term then; none: dense
  Value learning_rate;  // none: the terms are added
  Value step, weight;   // where there is a learning rate
  Value when;           // none: always
};

// Where a graph meets server variables.
class FunctionCut {
 public:
  explicit FunctionCut(const GraphFunction& graph);

  const GraphFunction& graph() const { return *graph_; }
  const std::vector<ServerVariablePtr>& tables() const { return tables_; }  // only looked up
  const std::vector<ServerVariablePtr>& whole() const { return whole_; }    // all others
  const std::vector<Lookup>& lookups() const { return lookups_; }
  const std::vector<Sending>& sendings() const { return sendings_; }
  // To be assigned after the function, and all whose storage it writes.
  const std::vector<ServerVariablePtr>& assigned() const { return assigned_; }
  const std::vector<ServerVariablePtr>& written() const { return written_; }
  // Variables of this process that may be on the servers, too, and those of them that it writes.
  const std::set<std::shared_ptr<OwnVariable>>& own() const { return own_; }
  const std::set<std::shared_ptr<OwnVariable>>& own_written() const { return own_written_; }
  // Whether another rule has taken a variable over since: it is written in other ways then.
  bool is_outdated() const { return rules_.are_outdated(); }
  // How many rows of a table its lookups name, each as often as it comes.
  int64_t num_lookups(size_t table) const;
  // The lookup that a node is, or null.
  const Lookup* lookup_of(const Node& node) const;

 private:
  void find_tables();
  void add_gradient(const Node& node);
  void add_writes(const ServerVariablePtr& variable, const std::vector<const Node*>& writes);

  const GraphFunction* graph_;
  KnownRules rules_;
  std::vector<ServerVariablePtr> tables_, whole_, assigned_, written_;
  std::set<std::shared_ptr<OwnVariable>> own_, own_written_;
  std::vector<Lookup> lookups_;
  std::vector<Sending> sendings_;
};

// By id: the nodes that these values follow from.
std::vector<bool> ancestors(const Graph& graph, const std::vector<Value>& values);

}  // namespace cohort::parameter_server
