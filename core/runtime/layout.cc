#include "core/runtime/layout.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <set>

#include "core/graph/op.h"
#include "core/graph/passes/rewriter.h"
#include "core/graph/value_map.h"
#include "core/runtime/memory_plan.h"

namespace cohort {
namespace {

constexpr int kEnd = std::numeric_limits<int>::max();

// A piece of the arena that holds one value after the other.
struct Slot {
  size_t bytes;
  int first, last;  // steps
  bool in_bucket = false;
  size_t offset = 0;
};

class LayoutBuilder {
 public:
  LayoutBuilder(const GraphFunction& function, const std::vector<ScheduledKernel>& schedule,
                BucketMemory bucket_memory)
      : function_(function), schedule_(schedule), bucket_memory_(bucket_memory) {}

  Layout build() {
    find_roots();
    find_uses();
    for (size_t step = 0; step < schedule_.size(); ++step) place_outputs(static_cast<int>(step));
    place_slots();
    for (const auto& [value, slot] : slot_of_) {
      layout_.unshared_bytes += value.spec().bytes();
      const bool apart = slots_[slot].in_bucket && bucket_memory_ == BucketMemory::kOwn;
      layout_.locations[value] = {.kind = apart ? Location::Kind::kBuckets : Location::Kind::kArena,
                                  .offset = slots_[slot].offset};
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
    for (size_t step = 0; step < schedule_.size(); ++step) {
      const Node& node = *schedule_[step].node;
      if (is_barrier(node)) barriers_.insert(static_cast<int>(step));
      if (!meeting_ && is_meeting(node)) meeting_ = static_cast<int>(step);
      if (node.op().may_fail) checks_.insert(static_cast<int>(step));
      if (node.op().name == "AssignVariable")
        assignments_[root(node.inputs()[0])].push_back(static_cast<int>(step));
    }
  }

  int last_use(const Value& value, int defined) const {
    const auto it = uses_.find(value);
    return it == uses_.end() ? defined : *std::max_element(it->second.begin(), it->second.end());
  }

  void place_outputs(int step) {
    const ScheduledKernel& item = schedule_[static_cast<size_t>(step)];
    if (item.node->resource() != nullptr) return;  // writes to its variable
    std::set<size_t> taken;  // slots that an earlier output of this node took over
    for (int i = 0; i < static_cast<int>(item.node->outputs().size()); ++i) {
      const Value output(const_cast<Node*>(item.node), i);
      if (place_in_variable(step, output) || place_over_input(step, output, taken)) continue;
      slot_of_[output] = slots_.size();
      slots_.push_back(
          {.bytes = output.spec().bytes(), .first = step, .last = last_use(output, step)});
    }
    if (is_start(*item.node)) make_bucket(*item.node);
  }

  // Of all results but the last, which identifies the operation.
  void make_bucket(const Node& start) {
    auto& bucket = buckets_.emplace_back();
    for (int i = 0; i + 1 < static_cast<int>(start.outputs().size()); ++i) {
      bucket.push_back(slot_of_.at(Value(const_cast<Node*>(&start), i)));
      slots_[bucket.back()].in_bucket = true;
    }
  }

  // Every bucket is one block, from its first value to its last use, and so is every other slot.
  void place_slots() {
    std::vector<std::vector<size_t>> others;
    for (size_t s = 0; s < slots_.size(); ++s)
      if (!slots_[s].in_bucket) others.push_back({s});
    if (bucket_memory_ == BucketMemory::kOwn) {
      layout_.bucket_bytes = place(buckets_);
    } else {
      others.insert(others.begin(), buckets_.begin(), buckets_.end());
    }
    layout_.arena_bytes = place(others);
  }

  // Finds places for pieces in one memory, and returns its size.
  size_t place(const std::vector<std::vector<size_t>>& pieces) {
    std::vector<MemoryBlock> blocks;
    for (const auto& piece : pieces) {
      MemoryBlock block{.first = kEnd, .last = 0};
      for (const size_t s : piece) {
        block.bytes += aligned_size(slots_[s].bytes);
        block.first = std::min(block.first, slots_[s].first);
        block.last = std::max(block.last, slots_[s].last);
      }
      blocks.push_back(block);
    }
    const size_t bytes = place_blocks(blocks);
    for (size_t b = 0; b < blocks.size(); ++b) {
      size_t offset = blocks[b].offset;
      for (const size_t s : pieces[b]) {
        slots_[s].offset = offset;
        offset += aligned_size(slots_[s].bytes);
      }
    }
    return bytes;
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
      if (root(inputs[static_cast<size_t>(i)]).is_same(value) &&
          !item.kernel->can_run_in_place(output, i))
        return false;
    return true;
  }

  bool place_in_variable(int step, const Value& output) {
    const auto it = assignments_.find(output);
    if (it == assignments_.end() || it->second.size() != 1 || last_use(output, step) == kEnd)
      return false;
    const int assign_step = it->second[0];
    const Node* assign = schedule_[static_cast<size_t>(assign_step)].node;
    const Resource* variable = assign->resource();
    // Other replicas may read their common copy until the barrier before the assignment.
    const auto barrier = barriers_.lower_bound(step);
    if (barrier != barriers_.end() && *barrier < assign_step) return false;
    // A replica that fails before the first meeting must not find this one's copy written, nor must
    // a meeting that fails leave parts of its result there.
    if (meeting_ && step <= *meeting_ && *meeting_ < assign_step) return false;
    // Who finds an error in front of the assignment must leave the old value.
    const auto check = checks_.upper_bound(step);
    if (check != checks_.end() && *check < assign_step) return false;
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
      const auto it = slot_of_.find(source);
      if (it == slot_of_.end() || taken.count(it->second) > 0) continue;
      Slot& slot = slots_[it->second];
      if (slot.last != step || slot.bytes != output.spec().bytes() ||
          (slot.in_bucket && is_start(*item.node)) || !may_overwrite(step, output.index(), source))
        continue;
      slot.last = last_use(output, step);
      taken.insert(it->second);
      slot_of_[output] = it->second;
      return true;
    }
    return false;
  }

  const GraphFunction& function_;
  const std::vector<ScheduledKernel>& schedule_;
  const BucketMemory bucket_memory_;
  Layout layout_;
  ValueMap<Value> root_of_;
  ValueMap<std::vector<int>> uses_;
  ValueMap<std::vector<int>> assignments_;  // their steps, by the value assigned
  std::set<int> barriers_;                  // their steps
  std::optional<int> meeting_;              // the step of the first one
  std::set<int> checks_;                    // steps that may fail
  std::map<const Resource*, std::vector<Value>> reads_;
  std::map<const Resource*, int> writes_;
  std::set<const Resource*> filled_;
  std::vector<Slot> slots_;
  ValueMap<size_t> slot_of_;
  std::vector<std::vector<size_t>> buckets_;  // slots side by side
};

}  // namespace

Layout make_layout(const GraphFunction& function, const std::vector<ScheduledKernel>& schedule,
                   BucketMemory bucket_memory) {
  return LayoutBuilder(function, schedule, bucket_memory).build();
}

}  // namespace cohort
