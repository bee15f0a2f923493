#pragma once

#include <functional>
#include <iosfwd>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/tensor/attributes.h"

namespace cohort {

class Graph;
class Node;
struct OpDef;

// Something outside the graph that stateful nodes name: a variable. Its storage is the runtime's
// affair.
class Resource {
 public:
  virtual ~Resource() = default;
  virtual const std::string& name() const = 0;
  virtual const TensorSpec& spec() const = 0;
};

// One output of a node: what user code computes with while a function is traced. A small value that
// does not keep its graph: one that is used when that is gone is kFailedPrecondition, as where a
// layer keeps what it has computed in a rehearsal. A Value that is default-constructed, or has been
// moved from, is "none": defined() is false, and its use kInvalidArgument. It is no condition and
// has no order, since what it will hold is not known while it is traced: `where` and `cond` choose,
// `maximum` and `less` compare elements.
class Value {
 public:
  Value() = default;
  Value(Node* node, int index);
  Value(const Value&) = default;
  Value(Value&& other) noexcept { swap(other); }
  Value& operator=(Value other) noexcept {
    swap(other);
    return *this;
  }

  bool defined() const { return node_ != nullptr; }
  Node& node() const {
    if (graph_lives_.expired()) refuse();
    return *node_;
  }
  int index() const { return index_; }
  const TensorSpec& spec() const;
  DType dtype() const { return spec().dtype; }
  const Shape& shape() const { return spec().shape; }
  Graph& graph() const;
  // Whether it is a value of `graph`: not where it is none, or its graph is gone.
  bool is_of(const Graph& graph) const;

  // Whether both are the same output of the same node, or none: nothing is said about elements.
  // Those of a graph that is gone are never those of another, wherever its nodes are in memory.
  bool is_same(const Value& other) const {
    return node_ == other.node_ && index_ == other.index_ && is_of_graph_of(other);
  }

 private:
  friend struct ValueOrder;  // core/graph/value_map.h
  [[noreturn]] void refuse() const;
  bool is_of_graph_of(const Value& other) const {
    return !graph_lives_.owner_before(other.graph_lives_) &&
           !other.graph_lives_.owner_before(graph_lives_);
  }
  void swap(Value& other) noexcept {
    std::swap(node_, other.node_);
    std::swap(index_, other.index_);
    graph_lives_.swap(other.graph_lives_);
  }

  Node* node_ = nullptr;
  int index_ = 0;
  std::weak_ptr<const char> graph_lives_;
};

// What gives `inputs` their gradients for those of `outputs`, in place of the ops in between. Of
// either there is one for each, which may be none.
struct CustomGradient {
  std::vector<Value> inputs, outputs;
  std::function<std::vector<Value>(const std::vector<Value>& output_gradients)> run;
};

// One application of an op. Created by Graph::add only; afterwards immutable but for passes.
class Node {
 public:
  int id() const { return id_; }  // position in the graph's order, which is a topological one
  const OpDef& op() const { return *op_; }
  const std::string& name() const { return name_; }  // "dense_1/MatMul": the scope it was traced in
  const std::vector<Value>& inputs() const { return inputs_; }
  const Attributes& attributes() const { return attributes_; }
  const std::vector<TensorSpec>& outputs() const { return outputs_; }
  Resource* resource() const { return resource_.get(); }  // null but for state ops
  const std::shared_ptr<Resource>& shared_resource() const { return resource_; }
  // What has to hold for the branch that it was traced in (BranchScope); none outside branches and
  // for nodes without inputs. For gradients: passes drop it.
  Value branch() const { return branch_; }
  // What stands for its op's gradient, or null; passes and serialisation drop it.
  const CustomGradient* custom_gradient() const { return custom_gradient_.get(); }
  Graph& graph() const { return *graph_; }
  Value output(int index = 0) { return Value(this, index); }

 private:
  friend class Graph;
  int id_ = 0;
  const OpDef* op_ = nullptr;
  std::string name_;
  std::vector<Value> inputs_;
  Attributes attributes_;
  std::vector<TensorSpec> outputs_;
  std::shared_ptr<Resource> resource_;
  Value branch_;
  std::shared_ptr<const CustomGradient> custom_gradient_;
  Graph* graph_ = nullptr;
};

// A dataflow graph with static shapes. Nodes are kept in the order in which they were added: every
// input comes before its users, and state ops on one resource take effect in this order. Not
// thread-safe.
class Graph {
 public:
  Graph() = default;
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  // A value that the caller feeds; its position among inputs() is its feed number.
  Value add_input(std::string name, TensorSpec spec);
  // Adds a node after inferring its output specs. Errors carry the scope, the op and the input
  // specs. All inputs must belong to this graph, and all attributes be among those that the op
  // lists.
  Node& add(std::string_view op, std::vector<Value> inputs, Attributes attributes = {},
            std::shared_ptr<Resource> resource = nullptr);
  // As above under a full name of its own rather than the current NameScope's, and with what
  // attributes passes may add; for passes and import.
  Node& add_named(std::string name, std::string_view op, std::vector<Value> inputs,
                  Attributes attributes, std::shared_ptr<Resource> resource = nullptr);
  // Of an op that is at hand already, as in copies of a node, which then need not look for it.
  Node& add_named(std::string name, const OpDef& op, std::vector<Value> inputs,
                  Attributes attributes, std::shared_ptr<Resource> resource = nullptr);
  // Of nodes next to each other, each of which has one of `outputs` and takes all of `inputs`.
  static void set_gradient(CustomGradient gradient);

  const std::vector<std::unique_ptr<Node>>& nodes() const { return nodes_; }
  const std::vector<Value>& inputs() const { return inputs_; }

 private:
  friend class Value;
  std::vector<std::unique_ptr<Node>> nodes_;
  std::vector<Value> inputs_;
  const std::shared_ptr<const char> lives_ = std::make_shared<const char>();  // for its values
};

std::ostream& operator<<(std::ostream& out, const Graph& graph);  // one line a node, for people

// While alive, the graph of this thread to which ops without inputs (constants, random, variable
// reads) are added. Scopes nest; the previous graph is current again afterwards.
class GraphScope {
 public:
  explicit GraphScope(Graph& graph);
  ~GraphScope();
  GraphScope(const GraphScope&) = delete;
  GraphScope& operator=(const GraphScope&) = delete;

 private:
  Graph* previous_;
};
// kFailedPrecondition when no function is being traced on this thread.
Graph& current_graph();
bool has_current_graph();

// While alive, prefixes the names of nodes and variables made on this thread: "encoder/dense_1".
class NameScope {
 public:
  explicit NameScope(std::string_view name);
  ~NameScope();
  NameScope(const NameScope&) = delete;
  NameScope& operator=(const NameScope&) = delete;
  static const std::string& current();  // "" at the top

 private:
  std::string previous_;
};

}  // namespace cohort
