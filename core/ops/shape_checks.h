#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "core/graph/op.h"

// Checks shared by the shape functions. A graph may come from a hostile file, so whatever a kernel
// relies on is required here. `what` names an input in the user's words ("filter"). All throw
// kInvalidArgument. Internal to core/ops.
namespace cohort::ops {

using Specs = std::vector<TensorSpec>;

void require_number(const TensorSpec& spec, std::string_view what);  // anything but bool
void require_floating(const TensorSpec& spec, std::string_view what);
void require_integer(const TensorSpec& spec, std::string_view what);
void require_same_dtype(const TensorSpec& a, std::string_view what_a, const TensorSpec& b,
                        std::string_view what_b);
void require_rank(const TensorSpec& spec, int rank, std::string_view what);
void require_min_rank(const TensorSpec& spec, int rank, std::string_view what);
void require_spec(const TensorSpec& spec, const TensorSpec& expected, std::string_view what);
// That a C++ number is one of `dtype`: 0.5 is no integer, 300 no uint8. Integers beyond 2^53 are
// refused, because doubles leave most of them out.
void require_number_of(double value, DType dtype);

// Attribute "axis": 0 <= axis < rank of `shape`.
int axis_attribute(const InferenceContext& c, const Shape& shape);
// A list of exactly `size` numbers of at least `low`.
std::span<const int64_t> list_attribute(const InferenceContext& c, std::string_view name, int size,
                                        int64_t low);
Shape shape_attribute(const InferenceContext& c);
double finite_attribute(const InferenceContext& c, std::string_view name);
int64_t count_attribute(const InferenceContext& c, std::string_view name);  // at least 0
// "" or the name of an elementwise op from floating numbers to floating numbers.
void require_activation(const InferenceContext& c);

// The dtype of a product or convolution of `operands`: theirs, or what the optional attribute
// "dtype" says, which may widen half types to float32.
DType product_dtype(const InferenceContext& c, DType operands);

// a + b of extents; kInvalidArgument on overflow.
int64_t add_extents(int64_t a, int64_t b);

// The dtype of statistics (means, log-sums) of values of `dtype`: at least float32.
DType statistics_dtype(DType dtype);

}  // namespace cohort::ops
