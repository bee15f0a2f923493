#include <algorithm>
#include <map>
#include <set>
#include <string>

#include "core/base/fnv1a.h"
#include "core/graph/op.h"
#include "core/graph/passes/passes.h"
#include "core/graph/passes/rewriter.h"
#include "core/tensor/elementwise_program.h"

namespace cohort {
namespace {

bool is_elementwise(const Node& node) {
  Scalar scalar;
  return node.op().name == "FusedElementwise" || node.op().name == "MultiElementwise" ||
         scalar_from_name(node.op().name, scalar);
}

// Whether each element of a result is made of one element of each input, or of the only one it has.
bool has_equal_shapes(const Node& node) {
  const size_t groups = static_cast<size_t>(node.attributes().get_or<int64_t>("groups", 1));
  const size_t width_in = node.inputs().size() / groups, width_out = node.outputs().size() / groups;
  for (size_t i = 0; i < node.inputs().size(); ++i) {
    const Shape& shape = node.outputs()[i / width_in * width_out].shape;
    const Shape& input = node.inputs()[i].shape();
    if (shape.num_elements() <= 1 || (input != shape && input.num_elements() != 1)) return false;
  }
  return true;
}

struct InOrder {
  bool operator()(const Node* a, const Node* b) const { return a->id() < b->id(); }
};
template <typename T>
using NodeMap = std::map<const Node*, T, InOrder>;

class Divider {
 public:
  Divider(const GraphFunction& function, int replica, const Sharing& sharing)
      : function_(function),
        replica_(replica),
        sharing_(sharing),
        users_(function),
        rewrite_(function) {}

  GraphFunction run() {
    find_epochs();
    for (const auto& node : function_.graph->nodes())
      if (may_divide(*node)) updates_.insert(node.get());
    keep_whole_what_is_used_whole();
    for (const Node* update : updates_) mark(*update);
    for (const auto& [barrier, names] : written_)
      attributes_of(*barrier).set("topic", topic(names));
    return copy_all();
  }

 private:
  // An epoch is what lies between two Barriers.
  void find_epochs() {
    Node* last = nullptr;
    for (const auto& node : function_.graph->nodes()) {
      if (is_barrier(*node)) last = node.get();
      begin_.push_back(last);
      if (is_read(*node)) reads_[node->resource()].push_back(node->output());
      if (is_write(*node)) writes_[node->resource()].push_back(node.get());
    }
  }
  // The Barrier before a node; null in the first epoch.
  Node* begin_of(const Node& node) const { return begin_[index(node)]; }
  static size_t index(const Node& node) { return static_cast<size_t>(node.id()); }

  // The assignment that alone uses an output, of a variable that replicas share.
  Node* shared_assignment(const Value& output) const {
    Node* user = users_.only_user(output);
    const bool is_one = user != nullptr && user->op().name == "AssignVariable" &&
                        sharing_(*user->resource()) > 1 && begin_of(*user) != nullptr &&
                        users_.of(user->output()).empty() && !is_output(user->output());
    return is_one ? user : nullptr;
  }
  bool is_output(const Value& value) const {
    const auto& outputs = function_.outputs;
    return std::find(outputs.begin(), outputs.end(), value) != outputs.end();
  }

  bool may_divide(Node& node) const {
    if (!is_elementwise(node) || !has_equal_shapes(node)) return false;
    for (size_t i = 0; i < node.outputs().size(); ++i)
      if (shared_assignment(node.output(static_cast<int>(i))) == nullptr) return false;
    return true;
  }

  std::vector<Node*> assignments(const Node& update) const {
    std::vector<Node*> found;
    for (size_t i = 0; i < update.outputs().size(); ++i)
      found.push_back(users_.only_user(Value(const_cast<Node*>(&update), static_cast<int>(i))));
    return found;
  }

  // Each update that is not divided after all may keep others whole.
  void keep_whole_what_is_used_whole() {
    size_t before = 0;
    do {
      before = updates_.size();
      const std::vector<bool> unsafe = find_unsafe();
      std::erase_if(updates_, [&](const Node* update) {
        const auto written = assignments(*update);
        return unsafe[index(*update)] ||
               std::any_of(written.begin(), written.end(),
                           [&](const Node* write) { return is_used_whole(*write->resource()); });
      });
    } while (updates_.size() < before);
  }

  bool is_divided(const Node& write) const {
    return write.op().name == "AssignVariable" && updates_.count(&write.inputs()[0].node()) > 0;
  }

  // By id: whether a node depends on a variable's memory that the first replica may be writing at
  // the same time.
  std::vector<bool> find_unsafe() const {
    std::vector<bool> unsafe;
    for (const auto& node : function_.graph->nodes()) {
      const auto& inputs = node->inputs();
      unsafe.push_back(std::any_of(inputs.begin(), inputs.end(), [&](const Value& input) {
        return unsafe[index(input.node())] || is_written_whole(input, *node);
      }));
    }
    return unsafe;
  }

  // Whether `memory` is a variable's that is written whole in the epoch of `user`.
  bool is_written_whole(const Value& memory, const Node& user) const {
    const Node& node = memory.node();
    if (is_alias(node)) return is_written_whole(node.inputs()[0], user);
    if (!is_read(node) || sharing_(*node.resource()) == 1) return false;
    const auto writes = writes_.find(node.resource());
    return writes != writes_.end() &&
           std::any_of(writes->second.begin(), writes->second.end(), [&](const Node* write) {
             return !is_divided(*write) && begin_of(*write) == begin_of(user);
           });
  }

  // Whether anything but updates uses the variable's memory, or writes it, while it is written.
  bool is_used_whole(const Resource& resource) const {
    std::set<const Node*> epochs;
    for (const Node* write : writes_.at(&resource)) {
      if (!is_divided(*write)) return true;
      epochs.insert(begin_of(*write));
    }
    const auto reads = reads_.find(&resource);
    return reads != reads_.end() &&
           std::any_of(reads->second.begin(), reads->second.end(),
                       [&](const Value& memory) { return is_used_whole(memory, epochs); });
  }
  bool is_used_whole(const Value& memory, const std::set<const Node*>& epochs) const {
    if (is_output(memory) && epochs.count(begin_.back()) > 0) return true;
    const auto& users = users_.of(memory);
    return std::any_of(users.begin(), users.end(), [&](Node* user) {
      if (is_alias(*user)) return is_used_whole(user->output(), epochs);
      return epochs.count(begin_of(*user)) > 0 && updates_.count(user) == 0;
    });
  }

  void mark(const Node& update) {
    const auto written = assignments(update);
    const std::vector<int64_t> own_part = {replica_, sharing_(*written[0]->resource())};
    attributes_of(update).set("part", own_part);
    for (const Node* write : written) {
      attributes_of(*write).set("part", own_part);
      written_[begin_of(*write)].insert(write->resource()->name());
    }
    for (const Value& input : update.inputs()) divide_sum(input, update, own_part);
  }

  void divide_sum(const Value& sum, const Node& update, const std::vector<int64_t>& own_part) {
    if (!is_wait(sum.node()) || users_.only_user(sum) != &update ||
        sum.shape() != update.outputs()[0].shape)
      return;
    Attributes& attributes = attributes_of(sum.node().inputs()[0].node());
    auto divided = attributes.get_or<std::vector<int64_t>>("divided", {});
    divided.push_back(sum.index());
    attributes.set("divided", std::move(divided));
    attributes.set("part", own_part);
  }

  static int64_t topic(const std::set<std::string>& names) {
    std::string text;
    for (const std::string& name : names) text += name + "\n";
    return static_cast<int64_t>(fnv1a(text));
  }

  Attributes& attributes_of(const Node& node) {
    return attributes_.try_emplace(&node, node.attributes()).first->second;
  }

  GraphFunction copy_all() {
    for (const auto& node : function_.graph->nodes()) {
      const auto changed = attributes_.find(node.get());
      if (changed == attributes_.end())
        rewrite_.copy(*node);
      else
        rewrite_.copy(*node, changed->second);
    }
    return rewrite_.finish();
  }

  const GraphFunction& function_;
  const int replica_;
  const Sharing& sharing_;
  const Users users_;
  Rewriter rewrite_;
  std::vector<Node*> begin_;  // by node: the Barrier before it
  std::map<const Resource*, std::vector<Value>> reads_;
  std::map<const Resource*, std::vector<const Node*>> writes_;
  std::set<const Node*, InOrder> updates_;  // to be divided
  NodeMap<Attributes> attributes_;          // that change
  // By Barrier: the variables that are written in parts behind it.
  NodeMap<std::set<std::string>> written_;
};

}  // namespace

GraphFunction divide_updates(const GraphFunction& function, int replica, const Sharing& sharing) {
  return Divider(function, replica, sharing).run();
}

}  // namespace cohort
