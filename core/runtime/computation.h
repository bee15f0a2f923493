#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/runtime/replica_group.h"

namespace cohort {

// What computes the values of a graph that is traced for `group`. It follows the graph as it grows,
// each node once; both must outlive it.
class Computations {
 public:
  Computations(const Graph& graph, const ReplicaGroup& group) : graph_(graph), group_(group) {}

  // What computes `value` of the graph, as a number: 0 where replicas may get different values from
  // it. Of two values of other numbers nothing is known, also where they are of traces for other
  // signatures; of one number they are the same, as good as always. Where all replicas have one
  // signature, there is nothing to compare, and only 0 has a meaning.
  uint64_t of(const Value& value);

 private:
  void follow(const Node& node);
  uint64_t number_of(const Node& node) const;
  bool is_same(const Node& node) const;
  std::string text_of(const Node& node) const;
  size_t input_number(const Node& node) const;
  uint64_t known(const Value& value) const {
    return numbers_[static_cast<size_t>(value.node().id())];
  }

  const Graph& graph_;
  const ReplicaGroup& group_;
  std::vector<uint64_t> numbers_;          // by node, of those followed so far
  int64_t calls_ = 0;                      // that communicate
  std::map<const Resource*, int> writes_;  // so far
};

}  // namespace cohort
