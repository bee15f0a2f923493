#include "core/runtime/layout.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <set>

#include "core/graph/op.h"
#include "core/graph/passes/rewriter.h"
#include "core/runtime/memory_plan.h"

namespace cohort {
namespace {

constexpr int kEnd = std::numeric_limits<int>::max();

class LayoutBuilder {
 public:
  LayoutBuilder(const GraphFunction& function, const std::vector<ScheduledKernel>& schedule)
      : function_(function), schedule_(schedule) {}

  Layout build() {
    find_roots();
    find_uses();
    for (size_t step = 0; step < schedule_.size(); ++step) place_outputs(static_cast<int>(step));
    layout_.arena_bytes = place_blocks(blocks_);
    for (const auto& [value, block] : block_of_) {
      layout_.unshared_bytes += value.spec().bytes();
      layout_.locations[value] = {.kind = Location::Kind::kArena, .offset = blocks_[block].offset};
    }
    for (const auto& [value, root] : root_of_)
      layout_.locations[value] = layout_.locations.at(root);
    return std::move(layout_);
  }

 private:
  Value root(const Value& value) const {
    const auto it = root_of_.find(value);
    return it == root_of_.end() ? value : it->second;
  }

  static Location variable_location(const Node& node) {
    return {.kind = Location::Kind::kVariable, .variable = node.resource()};
  }

  // Values that are another value's memory, and values whose place is given from outside.
  void find_roots() {
    size_t feed = 0;
    for (const auto& node : function_.graph->nodes()) {
      const std::string& op = node->op().name;
      if (is_alias(*node)) {
        root_of_[node->output()] = root(node->inputs()[0]);
      } else if (op == "Input") {
        layout_.locations[node->output()] = {.kind = Location::Kind::kFeed, .index = feed++};
      } else if (op == "Constant") {
        layout_.locations[node->output()] = {.kind = Location::Kind::kConstant,
                                             .constant = &node->attributes().get<Tensor>("value")};
      } else if (is_read(*node)) {
        layout_.locations[node->output()] = variable_location(*node);
        reads_[node->resource()].push_back(node->output());
      } else if (op == "AssignVariable") {
        layout_.locations[node->output()] = variable_location(*node);
        ++writes_[node->resource()];
      } else if (is_write(*node)) {
        ++writes_[node->resource()];
      }
    }
  }

  void find_uses() {
    for (size_t step = 0; step < schedule_.size(); ++step)
      for (const Value& input : schedule_[step].node->inputs())
        uses_[root(input)].push_back(static_cast<int>(step));
    for (const Value& output : function_.outputs) uses_[root(output)].push_back(kEnd);
    for (const ScheduledKernel& item : schedule_)
      if (item.node->op().name == "AssignVariable")
        assignments_[root(item.node->inputs()[0])].push_back(item.node);
  }

  int last_use(const Value& value, int defined) const {
    const auto it = uses_.find(value);
    return it == uses_.end() ? defined : *std::max_element(it->second.begin(), it->second.end());
  }

  void place_outputs(int step) {
    const ScheduledKernel& item = schedule_[static_cast<size_t>(step)];
    if (item.node->resource() != nullptr) return;  // writes to its variable
    std::set<size_t> taken;  // blocks that an earlier output of this node took over
    for (int i = 0; i < static_cast<int>(item.node->outputs().size()); ++i) {
      const Value output(const_cast<Node*>(item.node), i);
      if (place_in_variable(step, output) || place_over_input(step, output, taken)) continue;
      block_of_[output] = blocks_.size();
      blocks_.push_back(
          {.bytes = output.spec().bytes(), .first = step, .last = last_use(output, step)});
    }
  }

  // Every step that needs the variable's old value must be over, or be this step and able to run in
  // place.
  bool old_value_is_free(int step, int output, const Resource* variable) {
    for (const Value& read : reads_[variable]) {
      for (int use : uses_[read]) {
        if (use > step) return false;
        if (use == step && !may_overwrite(step, output, read)) return false;
      }
    }
    return true;
  }

  // Whether the kernel at `step` may write `output` over every input that lies in `value`'s memory.
  bool may_overwrite(int step, int output, const Value& value) const {
    const ScheduledKernel& item = schedule_[static_cast<size_t>(step)];
    const auto& inputs = item.node->inputs();
    for (int i = 0; i < static_cast<int>(inputs.size()); ++i)
      if (root(inputs[static_cast<size_t>(i)]) == value &&
          !item.kernel->can_run_in_place(output, i))
        return false;
    return true;
  }

  bool place_in_variable(int step, const Value& output) {
    const auto it = assignments_.find(output);
    if (it == assignments_.end() || it->second.size() != 1 || last_use(output, step) == kEnd)
      return false;
    const Node* assign = it->second[0];
    const Resource* variable = assign->resource();
    if (writes_[variable] != 1 || !old_value_is_free(step, output.index(), variable)) return false;
    // Two outputs of one node must not go over the same variable, and a variable is filled once.
    if (!filled_.insert(variable).second) return false;
    layout_.locations[output] = variable_location(*assign);
    layout_.elided.push_back(assign);
    return true;
  }

  bool place_over_input(int step, const Value& output, std::set<size_t>& taken) {
    const ScheduledKernel& item = schedule_[static_cast<size_t>(step)];
    for (const Value& input : item.node->inputs()) {
      const Value source = root(input);
      const auto it = block_of_.find(source);
      if (it == block_of_.end() || taken.count(it->second) > 0) continue;
      MemoryBlock& block = blocks_[it->second];
      if (block.last != step || block.bytes != output.spec().bytes() ||
          !may_overwrite(step, output.index(), source))
        continue;
      block.last = last_use(output, step);
      taken.insert(it->second);
      block_of_[output] = it->second;
      return true;
    }
    return false;
  }

  const GraphFunction& function_;
  const std::vector<ScheduledKernel>& schedule_;
  Layout layout_;
  std::map<Value, Value> root_of_;
  std::map<Value, std::vector<int>> uses_;
  std::map<Value, std::vector<const Node*>> assignments_;
  std::map<const Resource*, std::vector<Value>> reads_;
  std::map<const Resource*, int> writes_;
  std::set<const Resource*> filled_;
  std::vector<MemoryBlock> blocks_;
  std::map<Value, size_t> block_of_;
};

}  // namespace

Layout make_layout(const GraphFunction& function, const std::vector<ScheduledKernel>& schedule) {
  return LayoutBuilder(function, schedule).build();
}

}  // namespace cohort
