#pragma once

#include <cstdint>
#include <vector>

#include "core/graph/graph_function.h"

namespace cohort {

// Groups of nodes that a pass means to replace by one node each. A group may only grow while the
// graph of groups stays free of cycles, counting the order of effects, and while no AllReduceStart
// that uses a member comes before the group's last node, whose place the group takes.
class Clusters {
 public:
  explicit Clusters(const GraphFunction& function);

  // The cluster of a node, or -1.
  int of(const Node& node) const { return cluster_[static_cast<size_t>(node.id())]; }
  const std::vector<Node*>& members(int cluster) const {
    return members_[static_cast<size_t>(cluster)];
  }
  // A new cluster with one node.
  int create(Node& node);
  // Adds `node` to `cluster`, or leaves all as it is and returns false; so it does, too, once
  // looking for cycles has taken some seconds: graphs may be hostile.
  bool try_add(int cluster, Node& node);
  // Moves all of `from` into `into`, or returns false.
  bool try_merge(int into, int from);

  // All nodes in an order that runs each cluster at once: each entry is a whole cluster, members in
  // graph order, or a single node.
  std::vector<std::vector<Node*>> order() const;

 private:
  bool may_form(const std::vector<Node*>& group);
  bool delays_start(const std::vector<Node*>& group) const;
  bool closes_cycle(const std::vector<Node*>& group);
  // The id of the first node in the stretch of `node`.
  size_t stretch_of(const Node& node);
  void join_stretches(const std::vector<Node*>& group);

  const GraphFunction& function_;
  std::vector<std::vector<const Node*>> predecessors_;
  std::vector<int> first_start_;  // by node: the id of the first AllReduceStart that uses it
  std::vector<int> cluster_;
  std::vector<std::vector<Node*>> members_;
  std::vector<int> mark_;  // visit stamps of closes_cycle
  int stamp_ = 0;
  int64_t steps_ = 0;  // of all searches for cycles together
  // By node: the id of an earlier one in its stretch, or of the first its own. Stretches are runs
  // of nodes such that each cluster lies in one: nothing before a stretch depends on what is in it.
  std::vector<size_t> stretch_;
};

}  // namespace cohort
