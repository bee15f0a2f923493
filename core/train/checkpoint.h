#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/distribute/strategy.h"
#include "core/runtime/variable.h"
#include "core/train/safetensors.h"

namespace cohort {

using Variables = std::vector<std::shared_ptr<Variable>>;
using Metadata = std::map<std::string, std::string>;

// Tensors by name.
using Tensors = std::map<std::string, Tensor>;

// Whether each of the workers that act on their own (InputContext::independent) has its own of a
// variable: one that is synchronised on read, or not at all. They share all others.
bool is_of_each_worker(const Variable& variable);

// The values that variables have when it is made, to be looked at and then written. A variable with
// rows on first use is two tensors, the numbers of the rows in use, "NAME#rows", and "NAME#values".
class Snapshot {
 public:
  // A few strings are saved with the variables, and tensors of `extra`, which are no variable's, as
  // "extra:NAME". `workers` are kept by reference; where there are several, all make the call.
  // kInvalidArgument when two variables have the same name, or one has a name that begins with
  // "extra:", and for text that is not UTF-8.
  Snapshot(const Variables& variables, Metadata metadata, Workers& workers,
           const Tensors& extra = {});
  // For the workers that have made the variables (workers_of).
  explicit Snapshot(const Variables& variables, Metadata metadata = {})
      : Snapshot(variables, std::move(metadata), workers_of(variables)) {}

  // The values of one of the variables, or of its rows in use. Null where they were not read: by
  // workers other than the chief, which writes.
  const Tensor* find(const Variable& variable) const;
  // Writes a safetensors file, atomically: a save that fails leaves the file of before. Folders are
  // made as needed. All workers make the call, the chief writes to its path, and all get its error.
  void save(const std::string& path) const;
  // The same, for who goes on where the system refuses the file, or what the chief does with it
  // then: all are returned what try_write() returns on the chief.
  std::optional<Error> try_save(
      const std::string& path, const std::function<void()>& then = [] {}) const;

 private:
  void write(const std::string& path) const;
  std::string topic() const;

  size_t num_variables_;
  Workers& workers_;
  Safetensors content_;
};

// Saves a snapshot of `variables` to `path`, without `workers` for those that have made them: all
// of these make the call, and the chief writes.
void save_variables(const std::string& path, const Variables& variables,
                    const Metadata& metadata = {});
void save_variables(const std::string& path, const Variables& variables, const Metadata& metadata,
                    Workers& workers);

// The strings of such a file alone; without `workers` for those of the current strategy.
Metadata load_metadata(const std::string& path, Workers& workers = current_strategy().workers());

// The paths of the files in a folder that end in ".safetensors", the one written last first: for
// who goes on from the latest, or from one before where that is damaged (kDataLoss). A Snapshot is
// behind all that were there when it was written, also where the clock has gone back since. Empty
// where there is no such folder. With several workers, those that the chief finds.
std::vector<std::string> find_checkpoints(const std::string& folder,
                                          Workers& workers = current_strategy().workers());

struct LoadOptions {
  bool ignore_missing = false;     // variables that the file lacks keep their values
  bool ignore_unexpected = false;  // tensors of the file that are none of them are passed over
  // Variables that have another shape in the file keep their values, as with Keras' skip_mismatch;
  // but not tables of which it has the rows in use.
  bool ignore_other_shapes = false;
  // Makes of the tensors of the file, by name, those to be loaded: under other names, in other
  // layouts (Tensor::transpose), as files of other libraries need; it is not given those of dtypes
  // that are not supported. With several workers, all call it and have to get the same.
  std::function<Tensors(const Tensors& file)> convert = {};
  // Looks at the strings and the extra tensors of a file that fits, before any variable changes;
  // what it throws, on all workers alike, is why none does.
  std::function<void(const Safetensors& rest)> check = {};
};
// What a file has come to: names of variables, and of tensors that were none of them.
struct Loaded {
  Metadata metadata = {};                      // the file's strings
  std::vector<std::string> variables = {};     // that were set
  std::vector<std::string> widened = {};       // those of them that have fewer bits there
  std::vector<std::string> missing = {};       // that the file lacks
  std::vector<std::string> other_shapes = {};  // that have another shape there
  std::vector<std::string> unexpected = {};    // in the file alone
};
// Sets `variables` from a file. Floating values may have fewer bits there, as bfloat16 for float32,
// but not more, nor a table's rows. Tensors of dtypes that are not supported
// (Safetensors::unsupported) may only be unexpected. Names, shapes and dtypes are compared first:
// when something does not fit, all of it is listed (kInvalidArgument) and no variable has changed;
// so it is where the file has none of the names, whatever may be ignored, and for names with which
// Snapshot would not save them. With several workers, the chief reads and tells the others, which
// need no such file; where each acts on its own (InputContext::independent), all read, and the
// chief alone sets the variables that they share (is_of_each_worker). Without `workers`, these are
// those that have made the variables (workers_of).
Loaded load_variables(const std::string& path, const Variables& variables,
                      const LoadOptions& options = {});
Loaded load_variables(const std::string& path, const Variables& variables,
                      const LoadOptions& options, Workers& workers);

}  // namespace cohort
