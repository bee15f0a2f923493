#pragma once

#include <cstdint>
#include <vector>

#include "tests/strategies/training_testing.h"

// The programs that every strategy trains to the same numbers.
namespace cohort {

// Batch number `index` of these rows, for all of them: x [rows, 3], ids [rows, 2] and y [rows, 2].
data::Batch make_batch(DType dtype, int64_t rows, int index);

// Dense layers, the hidden ones of these widths.
Program perceptron(DType dtype, const std::vector<int64_t>& hidden = {5});

// Two looked-up rows of a table, which get a sparse gradient, through a dense layer.
Program embedding(DType dtype);

// Lists of up to two rows of a table, some empty, weighed by one of the inputs.
Program embedding_bag(DType dtype);

// A kernel that is used twice, one that is not trained, and one that is not used.
Program odd_parameters(DType dtype);

}  // namespace cohort
