#include "core/graph/passes/clusters.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <queue>
#include <set>

#include "core/graph/passes/rewriter.h"

namespace cohort {
namespace {

constexpr int kNever = std::numeric_limits<int>::max();
constexpr int64_t kMaxSteps = int64_t{1} << 30;  // some seconds

bool is_before(const Node* a, const Node* b) { return a->id() < b->id(); }

// By node: the id of the first AllReduceStart that uses its value, or an alias of it.
std::vector<int> first_starts(const GraphFunction& function) {
  const auto& nodes = function.graph->nodes();
  std::vector<int> first(nodes.size(), kNever);
  for (size_t i = nodes.size(); i-- > 0;) {
    const int use = is_start(*nodes[i]) ? nodes[i]->id() : is_alias(*nodes[i]) ? first[i] : kNever;
    for (const Value& input : nodes[i]->inputs()) {
      int& known = first[static_cast<size_t>(input.node().id())];
      known = std::min(known, use);
    }
  }
  return first;
}

}  // namespace

Clusters::Clusters(const GraphFunction& function)
    : function_(function),
      predecessors_(predecessors(function)),
      first_start_(first_starts(function)),
      cluster_(function.graph->nodes().size(), -1),
      mark_(function.graph->nodes().size(), 0),
      stretch_(function.graph->nodes().size()) {
  std::iota(stretch_.begin(), stretch_.end(), size_t{0});
}

int Clusters::create(Node& node) {
  cluster_[static_cast<size_t>(node.id())] = static_cast<int>(members_.size());
  members_.push_back({&node});
  return of(node);
}

bool Clusters::try_add(int cluster, Node& node) {
  std::vector<Node*> group = members(cluster);
  group.push_back(&node);
  if (!may_form(group)) return false;
  join_stretches(group);
  members_[static_cast<size_t>(cluster)] = std::move(group);
  cluster_[static_cast<size_t>(node.id())] = cluster;
  return true;
}

bool Clusters::try_merge(int into, int from) {
  std::vector<Node*> group = members(into);
  group.insert(group.end(), members(from).begin(), members(from).end());
  if (!may_form(group)) return false;
  join_stretches(group);
  for (Node* node : members(from)) cluster_[static_cast<size_t>(node->id())] = into;
  std::sort(group.begin(), group.end(), is_before);
  members_[static_cast<size_t>(into)] = std::move(group);
  members_[static_cast<size_t>(from)].clear();
  return true;
}

bool Clusters::may_form(const std::vector<Node*>& group) {
  steps_ += static_cast<int64_t>(group.size());
  return steps_ < kMaxSteps && !delays_start(group) && !closes_cycle(group);
}

size_t Clusters::stretch_of(const Node& node) {
  auto id = static_cast<size_t>(node.id());
  while (stretch_[id] != id) {
    stretch_[id] = stretch_[stretch_[id]];
    id = stretch_[id];
  }
  return id;
}

void Clusters::join_stretches(const std::vector<Node*>& group) {
  const auto [first, last] = std::minmax_element(group.begin(), group.end(), is_before);
  const size_t first_begin = stretch_of(**first);
  for (size_t begin = stretch_of(**last); begin > first_begin; begin = stretch_of(**last))
    stretch_[begin] = begin - 1;
}

bool Clusters::delays_start(const std::vector<Node*>& group) const {
  int last = 0, start = kNever;
  for (const Node* node : group) {
    last = std::max(last, node->id());
    start = std::min(start, first_start_[static_cast<size_t>(node->id())]);
  }
  return start < last;
}

// Walks back from what the group needs from outside, in its stretch; meeting the group again means
// a cycle.
bool Clusters::closes_cycle(const std::vector<Node*>& group) {
  const int inside = ++stamp_, seen = ++stamp_;
  const size_t begin = stretch_of(**std::min_element(group.begin(), group.end(), is_before));
  std::vector<const Node*> stack;
  const auto push_predecessors = [&](const Node& node) {
    for (const Node* before : predecessors_[static_cast<size_t>(node.id())]) {
      const auto id = static_cast<size_t>(before->id());
      ++steps_;
      if (id >= begin && mark_[id] != inside) stack.push_back(before);
    }
  };
  for (Node* node : group) mark_[static_cast<size_t>(node->id())] = inside;
  for (Node* node : group) push_predecessors(*node);
  const auto visit = [&](const Node& node) {
    ++steps_;
    int& mark = mark_[static_cast<size_t>(node.id())];
    if (mark == seen) return true;
    mark = seen;
    for (const Node* before : predecessors_[static_cast<size_t>(node.id())]) {
      const auto id = static_cast<size_t>(before->id());
      ++steps_;
      if (mark_[id] == inside) return false;
      if (id >= begin && mark_[id] != seen) stack.push_back(before);
    }
    return true;
  };
  while (!stack.empty()) {
    if (steps_ >= kMaxSteps) return true;  // for all that is known
    const Node* node = stack.back();
    stack.pop_back();
    if (of(*node) < 0) {
      if (!visit(*node)) return true;
      continue;
    }
    for (const Node* member : members(of(*node))) {
      // A member of a cluster that is being merged is inside already.
      if (mark_[static_cast<size_t>(member->id())] == inside) continue;
      if (!visit(*member)) return true;
    }
  }
  return false;
}

std::vector<std::vector<Node*>> Clusters::order() const {
  const auto& nodes = function_.graph->nodes();
  // Units are clusters, then single nodes; each runs as late in the graph's order as its last
  // member.
  std::vector<std::vector<Node*>> units = members_;
  std::vector<size_t> unit_of(nodes.size());
  for (const auto& node : nodes) {
    const int cluster = of(*node);
    unit_of[static_cast<size_t>(node->id())] =
        cluster >= 0 ? static_cast<size_t>(cluster) : units.size();
    if (cluster < 0) units.push_back({node.get()});
  }
  std::vector<std::set<size_t>> after(units.size());
  std::vector<int> waiting(units.size(), 0);
  for (const auto& node : nodes) {
    const size_t unit = unit_of[static_cast<size_t>(node->id())];
    for (const Node* before : predecessors_[static_cast<size_t>(node->id())]) {
      const size_t other = unit_of[static_cast<size_t>(before->id())];
      if (other != unit && after[other].insert(unit).second) ++waiting[unit];
    }
  }
  using Entry = std::pair<int, size_t>;
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> ready;
  const auto enqueue = [&](size_t unit) { ready.emplace(units[unit].back()->id(), unit); };
  for (size_t u = 0; u < units.size(); ++u)
    if (!units[u].empty() && waiting[u] == 0) enqueue(u);
  std::vector<std::vector<Node*>> result;
  while (!ready.empty()) {
    const size_t unit = ready.top().second;
    ready.pop();
    result.push_back(units[unit]);
    for (size_t next : after[unit])
      if (--waiting[next] == 0) enqueue(next);
  }
  return result;
}

}  // namespace cohort
