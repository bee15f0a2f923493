#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/data/dataset.h"

namespace cohort::data {

struct CsvOptions {
  // The column that is the label: a name from the header, or a number from 0, counted from the end
  // when negative. Empty: there is no label.
  std::string label_column = {};
  // The columns that are features, each named or numbered so, in the order in which "features" has
  // them; others may hold anything. Empty: all but the label.
  std::vector<std::string> feature_columns = {};
  bool has_header = true;             // the first record holds names; a warning where these are
                                      // numbers other than 0, 1, 2, ...
  char delimiter = ',';               // not a quote or a line end
  DType dtype = DType::kFloat32;      // of the features
  DType label_dtype = DType::kInt32;  // float32 for regression
  std::optional<int64_t> num_classes = {};  // when set, labels have to be from 0 to num_classes - 1
  std::optional<double> empty_value = {};   // when set, what an empty field of a feature stands for
};

// A file of numbers as RFC 4180 has it: records are lines, which end in LF, CR LF or CR, fields may
// be quoted and then hold delimiters and line ends, "" in a quoted field is a quote. Blank lines
// are skipped. "nan" and "inf" are numbers where the dtype has them; an empty field is none, unless
// empty_value says so. Integers from 2^53 on are read from digits alone, without point or exponent,
// so that they are exact. The file may be gzipped.
// {"features": dtype[columns], "label": label_dtype[]}, all held in memory.
// kDataLoss "FILE:LINE: byte B: column C (NAME): ..." (bytes of the decompressed content counted
// from 0, the others from 1) for what is not a number or does not fit the dtype, a record of
// another length, a label out of range, a file without records and one that is no whole gzip file;
// kNotFound when there is no such column; kInvalidArgument when two have its name, for such a
// delimiter and for an empty_value that is none of the dtype; else as core/base/file.h says.
Dataset csv(const std::string& path, CsvOptions options = {});

}  // namespace cohort::data
