#pragma once

namespace cohort::cuda {

// What an engine of cuDNN says of its numbers.
struct EngineNotes {
  bool tensor_cores = false;      // with float32 operands: rounds them to TF32
  bool narrows_operands = false;  // to fewer bits than they came with
  bool narrow_sums = false;       // adds up in fewer bits than it was told to
  bool nondeterministic = false;  // gives other bits at each run
};

// Which engines do. All sums are in float32, and the same step gives the same bits.
struct EngineRules {
  bool float32 = false;  // what the operands are
  bool tf32 = false;     // what they may be rounded to
  bool ordered = false;  // the graph leaves the order of sums to no engine, whatever engines say

  bool allow(const EngineNotes& notes) const {
    if (notes.narrows_operands || notes.narrow_sums) return false;
    if (notes.nondeterministic && !ordered) return false;
    return !float32 || tf32 || !notes.tensor_cores;
  }
};

}  // namespace cohort::cuda
