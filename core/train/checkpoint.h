#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/distribute/strategy.h"
#include "core/runtime/variable.h"
#include "core/train/safetensors.h"

namespace cohort {

using Variables = std::vector<std::shared_ptr<Variable>>;
using Metadata = std::map<std::string, std::string>;

// Tensors by name.
using Tensors = std::map<std::string, Tensor>;

// Writes the values of `variables` and a few strings to a safetensors file, atomically: a save that
// fails leaves the file of before. Folders are made as needed. A variable with rows on first use is
// two tensors, the numbers of the rows in use, "NAME#rows", and "NAME#values"; tensors of `extra`,
// which are no variable's, are named "extra:NAME". kInvalidArgument when two variables have the
// same name. For variables of a strategy with several workers, give its `workers`: all make the
// call, the chief writes to its path, and all get its error.
void save_variables(const std::string& path, const Variables& variables,
                    const Metadata& metadata = {}, Workers& workers = default_strategy().workers(),
                    const Tensors& extra = {});

// The strings of such a file alone.
Metadata load_metadata(const std::string& path, Workers& workers = default_strategy().workers());

struct LoadOptions {
  bool ignore_missing = false;     // variables that the file lacks keep their values
  bool ignore_unexpected = false;  // tensors of the file that are none of them are passed over
};
// Sets `variables` from a file and returns its strings and extra tensors. Names, shapes
// and dtypes are compared first: when something does not fit, all of it is listed
// (kInvalidArgument) and no variable has changed. With several workers, the chief reads and tells
// the others, which need no such file; where each acts on its own (InputContext::independent), all
// read, and the chief alone sets the variables that they share.
Safetensors load_variables(const std::string& path, const Variables& variables,
                           const LoadOptions& options = {},
                           Workers& workers = default_strategy().workers());

}  // namespace cohort
