#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "core/data/data_file.h"
#include "core/data/stored_type.h"

namespace cohort::data {

// What the header of a .npy file says.
struct NpyHeader {
  StoredType type;
  bool column_major = false;
  std::vector<int64_t> dims;  // not negative, at most Shape::kMaxRank
};

// Reads the Python dict in `text`, which starts at byte `start` of `file`. kDataLoss naming file
// and byte for anything but such a dict, kUnimplemented for an element type that no dtype can hold.
NpyHeader parse_npy_header(std::string_view text, const DataFile& file, uint64_t start);

}  // namespace cohort::data
