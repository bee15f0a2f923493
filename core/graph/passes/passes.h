#pragma once

#include <functional>
#include <map>
#include <set>
#include <vector>

#include "core/graph/graph_function.h"

// Graph-to-graph passes. Each takes a function and returns an equivalent one; results are the same
// up to floating-point rounding. They run in the order in which they stand here; the first six are
// needed, the others optimise.
namespace cohort {

// Evaluates one node on constant inputs; the runtime supplies it, because passes do not know
// kernels.
using Evaluator =
    std::function<std::vector<Tensor>(const Node& node, const std::vector<Tensor>& inputs)>;

// Lets replicas that run the function together write only when all have come so far: an error of
// one of them before that leaves the variables of all as they were. Writes before the first meeting
// (is_meeting) move behind it, and where there is none to the end, behind a Barrier; light nodes
// that only they need, or that read what they have written, move along. Where other nodes need what
// a write has written, it stays in front of them, and the Barrier with it. No other node is added.
GraphFunction meet_before_writing(const GraphFunction& function);

// Adds a Barrier in front of the call that comes where `other` has its first meeting, or behind all
// else: for a function that one replica runs while others run `other`, where meet_before_writing
// has added that meeting.
GraphFunction meet_as(const GraphFunction& other, const GraphFunction& function);

// Drops all Barriers: for a function that no other replicas run.
GraphFunction drop_barriers(const GraphFunction& function);

// Lets communication go on behind computation: each AllReduceStart moves up to where its last input
// has been computed, and each AllReduceWait down to the first use of its results. What is done to
// the inputs after the backward pass (sums, scaling, clipping by value) moves up with the start,
// and what is done to the results down with the wait. The order of nodes that communicate is the
// same for every replica's graph of one function, whatever its shapes; later passes keep it.
GraphFunction schedule_collectives(const GraphFunction& function);

// Drops nodes that nothing needs, merges equal ones, folds what depends on constants only, if into
// little memory, and removes identities: casts and reshapes to the same, multiplication by 1,
// addition of 0.
GraphFunction simplify(const GraphFunction& function, const Evaluator& evaluate);

// Copies a variable's value at its read where it is needed after the variable's next write, or by
// that write if it goes row by row: reads are the variable's own memory, which then holds the new
// value.
GraphFunction copy_outlived_reads(const GraphFunction& function);

// Drops the writes of resources for which `writes` is false, because another replica makes them in
// the shared copy, and what only they needed. Communication stays; where this replica wants none of
// a value's sum, the AllReduceStart says so in its attribute `unwanted`, a list of outputs.
GraphFunction prune_writes(const GraphFunction& function,
                           const std::function<bool(const Resource&)>& writes);

// Whose libraries compute in 16 bits. Those of CPUs give float32, but attention only widens what it
// reads. Those of GPUs have quick attention, and convolutions, whose results have 16 bits.
enum class LoweredFor { kCpu, kGpu };
// Multiplies matrices and convolves in `dtype`, a 16-bit one: casts the float32 inputs of those
// nodes, which still give float32. For GPUs attention is lowered as well, and its results and those
// of convolutions are of `dtype` before they are float32 again.
GraphFunction lower_precision(const GraphFunction& function, DType dtype, LoweredFor device);

// MatMul or Conv2D + bias [+ activation] become one node, which adds and activates while the result
// is still in registers.
GraphFunction fuse_bias_activation(const GraphFunction& function);

// BatchNorm + Relu become one node, and so do their gradients.
GraphFunction fuse_batch_norm_activation(const GraphFunction& function);

// Chains and trees of floating elementwise nodes of one shape become single FusedElementwise nodes.
// Values that stay inside keep the precision of the arithmetic, at least float32. What a conversion
// has rounded is used outside its node only, so that it is, and so is a value of 16 bits that is
// compared, tested for being finite, or converted.
GraphFunction fuse_elementwise(const GraphFunction& function);

// Fused updates with the same program that only feed assignments (an optimizer's step for every
// variable) become one MultiElementwise node, which runs over all of them as if they were one
// array. One a bucket: none is kept waiting by an AllReduceWait that others need.
GraphFunction fuse_updates(const GraphFunction& function);

// How many replicas share the memory of a resource, each of which may write a part of it: 1 where
// it is this one's own, or only one of them may write it.
using Sharing = std::function<int(const Resource&)>;
// A value that is reduced in the background: by which AllReduceStart, counted from the first, and
// as which of its outputs.
struct ReducedValue {
  int start, output;
  auto operator<=>(const ReducedValue&) const = default;
};
// What replicas that share variables do in parts. They have to agree on it, so it is found in the
// function as it is before prune_writes.
struct Division {
  std::set<const Resource*> variables;  // of which each replica writes its part
  std::map<ReducedValue, int> sums;     // of which it needs its part alone, of so many
};
// Finds the elementwise updates of shared variables. A variable stays whole whose memory anything
// but these updates uses between the Barrier in front of its write and the next one, such as the
// norm of its value; and so does what depends on the memory of one that the first replica writes
// there as a whole. A sum stays whole that anything but an update uses.
Division find_division(const GraphFunction& function, const Sharing& sharing);
// Lets each replica make its part of those updates (part_of), and want no more of their sums (as
// ZeRO's first stage, Rajbhandari et al. 2020, but that all have the result already). The update,
// its AssignVariables and, for the sums, the AllReduceStart get the attribute `part`: the number of
// this replica's part and how many there are; the start's `divided` lists the outputs concerned.
// The Barrier in front of such writes gets a `topic` of the variables' names, so that replicas that
// do not divide alike get an error.
GraphFunction divide_updates(const GraphFunction& function, const Division& division, int replica,
                             const Sharing& sharing);
// kInvalidArgument where a replica needs the memory of a shared variable, but of a divided one, for
// anything but writes that the first replica makes, while that may be writing it.
void check_shared_reads(const GraphFunction& function, const Sharing& sharing,
                        const std::set<const Resource*>& divided);

// Of a division's sums those of products of two matrices with few rows, as the gradient of a dense
// layer's weights is; where the AllReduceStart says, by its attribute `adds_alike`, that it adds
// and that all replicas run this very function. Found as the division is, before prune_writes.
std::set<ReducedValue> find_factored(const GraphFunction& function, const Division& division);
// Gathers the rows of both factors from all replicas instead of adding up whole products, and
// computes of the sum, which is the product of what is gathered, this replica's part alone: rows
// are fewer bytes than products (sufficient factor broadcasting, Xie et al. 2016). For a function
// of divide_updates.
GraphFunction gather_factors(const GraphFunction& function, const std::set<ReducedValue>& factored);

}  // namespace cohort
