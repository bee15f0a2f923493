#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/graph/graph.h"

namespace cohort {

// The dtypes and shapes of a function's inputs.
using Signature = std::vector<TensorSpec>;
// An order, for maps.
struct SignatureLess {
  bool operator()(const Signature& a, const Signature& b) const;
};

// For whom a function is traced: what a trace may depend on besides its inputs' signature.
struct ReplicaGroup {
  uint64_t strategy = 0;  // identifies the strategy, never reused; 0 for none
  int num_replicas = 1;   // in sync
  // The signature of every replica's inputs, where they differ (a partial batch); empty where all
  // have the caller's.
  std::vector<Signature> signatures;
  // By input: whether every replica is given the same tensor. Empty: none is.
  std::vector<bool> same_input;
  std::string strategy_name = {};  // for messages

  bool operator==(const ReplicaGroup&) const = default;
};

// While a function is traced: the shape that `value` has on each replica in sync, in replica order.
// Makes static what depends on the other replicas' row counts: sizes of gathered parts, weights by
// true rows. Every replica must ask in the same order. Outside a strategy, the value's own shape.
std::vector<Shape> shapes_on_replicas(const Value& value);

// While a function is traced: the group it is traced for.
const ReplicaGroup& traced_group();

// Whether `value` is known to be the same on every replica: it depends on constants, on inputs that
// are (ReplicaGroup::same_input), on variables whose copies are equal, and on the results of
// collectives; never on a replica's own inputs, id or random numbers, or on what a stateful op of
// one's own returns (OpDef::stateful). Where replicas have different signatures, each has a trace
// of its own, whose constants may follow from its shapes: then all traces have to compute the value
// alike, and every replica must ask in the same order.
bool is_same_on_replicas(const Value& value);

}  // namespace cohort
