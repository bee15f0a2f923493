#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "core/tensor/tensor.h"

namespace cohort::parameter_server {

// One start of a task, and the last of its pushes that a shard has.
struct Mark {
  uint64_t incarnation = 0;
  uint64_t sequence = 0;
  bool operator==(const Mark&) const = default;
};
// By task, by source, and for what a task writes without a gradient by its name and kWrites.
using Marks = std::map<std::string, Mark>;
inline constexpr char kWrites[] = "/writes";

// An update by the shard's rule, with what decides all of it.
struct AppliedGradient {
  Tensor values;  // of the shard, or of `rows`
  std::optional<std::vector<int64_t>> rows;
  double learning_rate = 0;
  uint64_t number = 0;  // of the update
};

// A part is overwritten.
struct AssignedPart {
  int part = 0;
  Tensor value;
};

// Rows of a part of a table with rows on first use are overwritten; where `reset`, all others get
// their initial value first. Where `only_missing`, rows in use stay as they are, and so does the
// shard's version: done again, it changes nothing.
struct AssignedRows {
  int part = 0;
  bool reset = false;
  bool only_missing = false;
  std::span<const int64_t> rows;
  const char* values = nullptr;  // of all rows, one after the other
  size_t value_bytes = 0;
};

// What happens to a shard between two of its versions, in the form in which it can be done again.
struct Change {
  std::string shard;
  uint64_t version = 0;  // of the shard, before it
  Marks marks;           // that the shard has from then on
  // Nothing: the marks alone change.
  std::variant<std::monostate, AppliedGradient, AssignedPart, AssignedRows> what;
};

}  // namespace cohort::parameter_server
