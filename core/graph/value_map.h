#pragma once

#include <map>
#include <set>
#include <utility>

#include "core/graph/graph.h"

namespace cohort {

// An order by identity, for containers only.
struct ValueOrder {
  bool operator()(const Value& a, const Value& b) const {
    return std::pair(a.node_, a.index_) < std::pair(b.node_, b.index_);
  }
};

template <typename T>
using ValueMap = std::map<Value, T, ValueOrder>;
using ValueSet = std::set<Value, ValueOrder>;

}  // namespace cohort
