#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "core/tensor/shape.h"

namespace cohort {

// Scalar operations that work element by element. Comparisons and logic give 0 or 1; a condition is
// true when it is not 0. Graphs that are traced and sent name ops; the numbers are in programs that
// passes make, and may change.
enum class Scalar : int64_t {
  kCopy = 0,  // also Cast: the load and the store convert
  // one operand
  kNeg,
  kAbs,
  kSign,
  kExp,
  kExpm1,
  kLog,
  kLog1p,
  kSqrt,
  kRsqrt,
  kSquare,
  kReciprocal,
  kTanh,
  kErf,
  kSin,
  kCos,
  kFloor,
  kRound,
  kSigmoid,
  kSoftplus,
  kRelu,
  kGelu,
  kGeluTanh,
  kSilu,
  kLogicalNot,
  kIsFinite,
  // two operands
  kAdd,
  kSub,
  kMul,
  kDiv,
  kPow,
  kMod,
  kMaximum,
  kMinimum,
  kEqual,
  kNotEqual,
  kLess,
  kLessEqual,
  kGreater,
  kGreaterEqual,
  kLogicalAnd,
  kLogicalOr,
  // two operands: upstream gradient, then the activation's output (Relu, Tanh, Sigmoid) or its
  // input (others)
  kReluGrad,
  kTanhGrad,
  kSigmoidGrad,
  kGeluGrad,
  kGeluTanhGrad,
  kSiluGrad,
  // three operands: condition, value where true, value where false
  kSelect,
  kCount,
};

// How many operands it has: 1 to 3.
int scalar_arity(Scalar op);
// The op name in graphs ("ReluGrad"); and back, returning false for a name that is none of these.
std::string_view scalar_name(Scalar op);
bool scalar_from_name(std::string_view name, Scalar& op);

// A straight-line program over registers: registers 0 .. num_inputs-1 hold the inputs (broadcast to
// the output shape), instruction i writes register num_inputs + i. A program computes
// in one type throughout: float32; float64 when any input or output is float64, or an instruction
// other than a copy reads an int32 or int64 input; int64 when no input and no output is floating.
// Conversions happen at loads and stores only, so that a chain through a cast to a narrower type is
// not one program.
struct ElementwiseProgram {
  struct Instruction {
    Scalar op;
    int64_t a = 0, b = 0, c = 0;  // register numbers; unused ones are 0
  };
  int num_inputs = 0;
  std::vector<Instruction> instructions;
  std::vector<int64_t> outputs;  // register of each output

  // The form kept in the "program" attribute of FusedElementwise.
  std::vector<int64_t> encode() const;
  // kInvalidArgument when the encoding is not a program (it may come from a file).
  static ElementwiseProgram decode(const std::vector<int64_t>& encoded);
};

}  // namespace cohort
