#include "core/data/table.h"

#include <cstring>
#include <utility>

namespace cohort::data {
namespace {

TensorSpec row_spec(const Table::Column& column) {
  const DType dtype = column.divisor ? DType::kFloat32 : column.values.dtype();
  return {dtype, column.values.shape().without_axis(0)};
}

void divide(const uint8_t* from, int64_t count, float divisor, float* to) {
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) to[i] = static_cast<float>(from[i]) / divisor;
}

// Copies or converts one row to `to`, which holds `elements` values of the row's dtype.
void read_row(const Table::Column& column, int64_t row, int64_t elements, void* to) {
  const size_t stored = static_cast<size_t>(elements) * dtype_size(column.values.dtype());
  const char* from =
      static_cast<const char*>(column.values.raw()) + static_cast<size_t>(row) * stored;
  if (column.divisor)
    divide(reinterpret_cast<const uint8_t*>(from), elements, *column.divisor,
           static_cast<float*>(to));
  else
    std::memcpy(to, from, stored);
}

}  // namespace

Table::Table(std::vector<Column> columns) : columns_(std::move(columns)) {
  std::vector<Field> fields;
  for (const Column& column : columns_) {
    fields.push_back({column.name, column.values});
    COHORT_CHECK(!column.divisor || column.values.dtype() == DType::kUInt8);
  }
  rows_ = Element(std::move(fields)).rows();
}

std::shared_ptr<const Table> table_of(const Element& tensors) {
  std::vector<Table::Column> columns;
  for (const Field& field : tensors) columns.push_back({field.name, field.tensor, std::nullopt});
  return std::make_shared<Table>(std::move(columns));
}

Element Table::row(int64_t row) const {
  std::vector<Field> fields;
  fields.reserve(columns_.size());
  for (const Column& column : columns_) {
    const TensorSpec spec = row_spec(column);
    if (column.divisor) {
      Tensor converted(spec.dtype, spec.shape);
      read_row(column, row, spec.shape.num_elements(), converted.raw());
      fields.push_back({column.name, std::move(converted)});
    } else {
      fields.push_back({column.name, column.values.slice_rows(row, row + 1).reshape(spec.shape)});
    }
  }
  return Element(std::move(fields));
}

Element Table::gather(std::span<const int64_t> rows) const {
  std::vector<Field> fields;
  for (const Column& column : columns_) {
    const TensorSpec spec = row_spec(column);
    Tensor batch(spec.dtype, spec.shape.with_inserted(0, static_cast<int64_t>(rows.size())));
    char* to = static_cast<char*>(batch.raw());
    const int64_t elements = spec.shape.num_elements();
    for (const int64_t row : rows) {
      read_row(column, row, elements, to);
      to += spec.bytes();
    }
    fields.push_back({column.name, std::move(batch)});
  }
  return Element(std::move(fields));
}

}  // namespace cohort::data
