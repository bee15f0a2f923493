#pragma once

#include <map>
#include <set>

#include "core/graph/graph.h"

namespace cohort {

// An order by identity (Value::is_same), for containers only.
struct ValueOrder {
  bool operator()(const Value& a, const Value& b) const {
    if (a.node_ != b.node_) return a.node_ < b.node_;
    if (a.index_ != b.index_) return a.index_ < b.index_;
    return a.graph_lives_.owner_before(b.graph_lives_);
  }
};

template <typename T>
using ValueMap = std::map<Value, T, ValueOrder>;
using ValueSet = std::set<Value, ValueOrder>;

}  // namespace cohort
