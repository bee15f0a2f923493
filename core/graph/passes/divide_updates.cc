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
    if (shape.num_elements() == 1 || (input != shape && input.num_elements() != 1)) return false;
  }
  return true;
}

// Where variables are read and written: in which epochs, the stretches between two Barriers.
class Accesses {
 public:
  Accesses(const GraphFunction& function, const Sharing& sharing) : sharing_(sharing) {
    const Node* last = nullptr;
    for (const auto& node : function.graph->nodes()) {
      if (is_barrier(*node)) last = node.get();
      epochs_.push_back(last);
      if (is_read(*node)) reads_[node->resource()].push_back(node->output());
      if (is_write(*node)) writes_[node->resource()].push_back(node.get());
    }
  }

  // The Barrier before a node; null in the first epoch.
  const Node* epoch(const Node& node) const { return epochs_[static_cast<size_t>(node.id())]; }
  const Node* last_epoch() const { return epochs_.empty() ? nullptr : epochs_.back(); }
  // REQUIRES: there are writes.
  const std::vector<const Node*>& writes(const Resource* resource) const {
    return writes_.at(resource);
  }
  std::vector<Value> reads(const Resource* resource) const {
    const auto found = reads_.find(resource);
    return found == reads_.end() ? std::vector<Value>{} : found->second;
  }

  // The shared variable whose memory `value` is, if a write for which `counts` is true is in the
  // epoch of `user`; else null. Writes without a Barrier in front are of a function that no
  // replicas run.
  template <typename F>
  const Resource* written_beside(const Value& value, const Node& user, const F& counts) const {
    const Node& node = origin(value);
    if (!is_read(node) || sharing_(*node.resource()) == 1) return nullptr;
    const auto writes = writes_.find(node.resource());
    const bool is_written =
        writes != writes_.end() &&
        std::any_of(writes->second.begin(), writes->second.end(), [&](const Node* write) {
          return counts(*write) && epoch(*write) != nullptr && epoch(*write) == epoch(user);
        });
    return is_written ? node.resource() : nullptr;
  }

 private:
  const Sharing& sharing_;
  std::vector<const Node*> epochs_;  // by node
  std::map<const Resource*, std::vector<Value>> reads_;
  std::map<const Resource*, std::vector<const Node*>> writes_;
};

class Divider {
 public:
  Divider(const GraphFunction& function, const Sharing& sharing)
      : function_(function),
        sharing_(sharing),
        users_(function),
        accesses_(function, sharing),
        starts_(number_starts(function)),
        rewrite_(function) {
    for (const auto& node : function_.graph->nodes())
      if (may_divide(*node)) updates_.insert(node.get());
    keep_whole_what_is_used_whole();
  }

  Division division() const {
    Division found;
    for (const Node* update : updates_) {
      const auto written = assignments(*update);
      for (const Node* write : written) found.variables.insert(write->resource());
      for (const Value& input : update->inputs())
        if (is_wait(input.node()) && users_.only_user(input) == update &&
            input.shape().num_elements() > 1)
          found.sums[reduced_value(input)] = sharing_(*written[0]->resource());
    }
    return found;
  }

  GraphFunction divide(const Division& division, int replica) {
    for (const Node* update : updates_) mark(*update, division, replica);
    for (const auto& [barrier, names] : written_)
      attributes_of(*barrier).set("topic", topic(names));
    return copy_all();
  }

 private:
  // The assignment that alone uses an output, of a variable that replicas share.
  Node* shared_assignment(const Value& output) const {
    Node* user = users_.only_user(output);
    const bool is_one = user != nullptr && user->op().name == "AssignVariable" &&
                        sharing_(*user->resource()) > 1 && accesses_.epoch(*user) != nullptr &&
                        users_.of(user->output()).empty() && !users_.is_output(user->output());
    return is_one ? user : nullptr;
  }

  bool may_divide(Node& node) const {
    if (!is_elementwise(node) || !has_equal_shapes(node)) return false;
    for (size_t i = 0; i < node.outputs().size(); ++i)
      if (shared_assignment(node.output(static_cast<int>(i))) == nullptr) return false;
    return true;
  }

  std::vector<const Node*> assignments(const Node& update) const {
    std::vector<const Node*> found;
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
        return unsafe[static_cast<size_t>(update->id())] ||
               std::any_of(written.begin(), written.end(),
                           [&](const Node* write) { return is_used_whole(write->resource()); });
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
    const auto is_whole = [&](const Node& write) { return !is_divided(write); };
    for (const auto& node : function_.graph->nodes()) {
      const auto& inputs = node->inputs();
      unsafe.push_back(std::any_of(inputs.begin(), inputs.end(), [&](const Value& input) {
        return unsafe[static_cast<size_t>(input.node().id())] ||
               accesses_.written_beside(input, *node, is_whole) != nullptr;
      }));
    }
    return unsafe;
  }

  // Whether anything but updates uses the variable's memory, or writes it, while it is written.
  bool is_used_whole(const Resource* resource) const {
    std::set<const Node*> epochs;
    for (const Node* write : accesses_.writes(resource)) {
      if (!is_divided(*write)) return true;
      epochs.insert(accesses_.epoch(*write));
    }
    const auto reads = accesses_.reads(resource);
    return std::any_of(reads.begin(), reads.end(),
                       [&](const Value& memory) { return is_used_whole(memory, epochs); });
  }
  bool is_used_whole(const Value& memory, const std::set<const Node*>& epochs) const {
    const auto is_returned = [&](const Value& value) {
      return users_.is_output(value) && epochs.count(accesses_.last_epoch()) > 0;
    };
    if (is_returned(memory)) return true;
    const std::vector<Node*> users = users_.of_memory(memory);
    return std::any_of(users.begin(), users.end(), [&](Node* user) {
      if (is_alias(*user)) return is_returned(user->output());
      return epochs.count(accesses_.epoch(*user)) > 0 && updates_.count(user) == 0;
    });
  }

  ReducedValue reduced_value(const Value& sum) const {
    return {starts_.at(&sum.node().inputs()[0].node()), sum.index()};
  }

  void mark(const Node& update, const Division& division, int replica) {
    const auto written = assignments(update);
    const std::vector<int64_t> own_part = {replica, sharing_(*written[0]->resource())};
    attributes_of(update).set("part", own_part);
    for (const Node* write : written) {
      attributes_of(*write).set("part", own_part);
      written_[accesses_.epoch(*write)].insert(write->resource()->name());
    }
    for (const Value& input : update.inputs())
      if (is_wait(input.node()) && division.sums.count(reduced_value(input)) > 0)
        divide_sum(input, own_part);
  }

  void divide_sum(const Value& sum, const std::vector<int64_t>& own_part) {
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
  const Sharing& sharing_;
  const Users users_;
  const Accesses accesses_;
  const std::map<const Node*, int> starts_;
  Rewriter rewrite_;
  std::set<const Node*> updates_;                 // to be divided
  std::map<const Node*, Attributes> attributes_;  // that change
  // By Barrier: the variables that are written in parts behind it.
  std::map<const Node*, std::set<std::string>> written_;
};

}  // namespace

Division find_division(const GraphFunction& function, const Sharing& sharing) {
  return Divider(function, sharing).division();
}

GraphFunction divide_updates(const GraphFunction& function, const Division& division, int replica,
                             const Sharing& sharing) {
  return Divider(function, sharing).divide(division, replica);
}

void check_shared_reads(const GraphFunction& function, const Sharing& sharing,
                        const std::set<const Resource*>& divided) {
  const Accesses accesses(function, sharing);
  const auto is_of_first = [&](const Node& write) {
    return is_write(write) && sharing(*write.resource()) > 1 &&
           divided.count(write.resource()) == 0;
  };
  const auto live = find_live(function, is_of_first);
  for (const auto& node : function.graph->nodes()) {
    if (!live[static_cast<size_t>(node->id())] || is_alias(*node)) continue;
    for (const Value& input : node->inputs())
      if (const Resource* variable = accesses.written_beside(input, *node, is_of_first))
        invalid(node->name(), " uses variable \"", variable->name(),
                "\" where the first replica may be writing it for all, between the barriers of an "
                "update; read it before begin_update or behind end_update");
  }
}

}  // namespace cohort
