#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/data/element.h"

namespace cohort::data {

class Dataset;

// Examples that are all in memory: named columns with one row for each example. Immutable, so
// threads may share it. Rows are read one by one, or gathered into a batch with one copy for each
// row.
class Table {
 public:
  struct Column {
    std::string name;
    Tensor values;  // [rows, ...]
    // Set for a uint8 column whose rows are read as float32, divided by this number: pixels stay
    // small in memory and are scaled on their way out.
    std::optional<float> divisor;
  };

  // kInvalidArgument when there is no column, one is a scalar, or two differ in rows (names both).
  explicit Table(std::vector<Column> columns);

  int64_t rows() const { return rows_; }
  // Row `row`, without the first axis; it shares memory with the table unless it had to be
  // converted.
  Element row(int64_t row) const;
  // A batch of the given rows, in that order, in memory of its own.
  Element gather(std::span<const int64_t> rows) const;

 private:
  std::vector<Column> columns_;
  int64_t rows_ = 0;
};

// The tensors given as columns, sharing memory.
std::shared_ptr<const Table> table_of(const Element& tensors);
// The rows of a table in order.
Dataset from_table(std::shared_ptr<const Table> table);

}  // namespace cohort::data
