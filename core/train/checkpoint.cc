#include "core/train/checkpoint.h"

#include <filesystem>
#include <functional>
#include <set>
#include <stdexcept>
#include <string_view>

#include "core/base/comma_separated.h"
#include "core/base/error.h"
#include "core/base/file.h"
#include "core/distribute/packing.h"
#include "core/distribute/row_variable.h"
#include "core/runtime/aggregation.h"
#include "core/train/checkpoint_files.h"
#include "core/train/try_write.h"

namespace cohort {

namespace {

std::string numbers_key(const Variable& variable) { return variable.name() + "#rows"; }
std::string values_key(const Variable& variable) { return variable.name() + "#values"; }

// Reading a variable that is synchronised on read takes all workers; of others the chief has a
// copy.
Tensors values_of(const Variables& variables, const Workers& workers) {
  Tensors values;
  for (const auto& variable : variables) {
    if (!workers.is_chief() && variable->synchronization() != Synchronization::kOnRead) continue;
    if (const RowVariable* table = as_row_variable(*variable)) {
      VariableRows rows = table->rows_in_use();
      values[numbers_key(*variable)] = std::move(rows.numbers);
      values[values_key(*variable)] = std::move(rows.values);
    } else {
      values[variable->name()] = variable->value();
    }
  }
  return values;
}

// Takes the rows of a table out of a file's tensors. In words what is wrong with them; empty:
// nothing.
std::string take_rows(const Variable& variable, Tensors& tensors, VariableRows& rows) {
  const auto numbers = tensors.extract(numbers_key(variable)),
             values = tensors.extract(values_key(variable));
  const TensorSpec& spec = variable.spec();
  if (numbers.empty() || values.empty())
    return str("\n  missing: ", numbers_key(variable), " and ", values_key(variable), " of ", spec,
               tensors.contains(variable.name())
                   ? ": in the file it has all rows, and here it makes them on first use"
                   : "");
  rows = {numbers.mapped(), values.mapped()};
  const TensorSpec& found = rows.numbers.spec();
  if (found.dtype != DType::kInt64 || found.shape.rank() != 1 ||
      rows.values.spec() != TensorSpec{spec.dtype, spec.shape.with_dim(0, found.shape[0])})
    return str("\n  ", variable.name(), " is ", spec, ", in the file there are rows ", found,
               " of values ", rows.values.spec());
  int64_t last = -1;
  for (const int64_t row : rows.numbers.values<int64_t>()) {
    if (row <= last || row >= spec.shape[0])
      return str("\n  ", numbers_key(variable), " has row ", row, " after row ", last,
                 "; there are ", spec.shape[0]);
    last = row;
  }
  return "";
}

// Before the names of tensors that are no variable's.
constexpr std::string_view kExtra = "extra:";

// Takes these out of a file's tensors.
Tensors take_extra(Tensors& tensors) {
  Tensors extra;
  for (auto next = tensors.lower_bound(std::string(kExtra));
       next != tensors.end() && next->first.starts_with(kExtra);) {
    auto node = tensors.extract(next++);
    node.key().erase(0, kExtra.size());
    extra.insert(std::move(node));
  }
  return extra;
}

// `call` is "save" or "load".
void require_own_names(std::string_view call, const Variables& variables) {
  std::set<std::string> names;
  for (const auto& variable : variables) {
    const std::string& name = variable->name();
    if (!names.insert(name).second)
      invalid("cannot ", call, " the variables: two are named \"", name,
              "\"; give one of the layers, networks or optimizers that they are of another `name`");
    if (name.starts_with(kExtra))
      invalid("cannot ", call, " the variable \"", name, "\": names that begin with \"", kExtra,
              "\" are those of tensors that are no variable's");
  }
}

std::string pack(const Safetensors& content) {
  Packer packer;
  for (const auto* texts : {&content.metadata, &content.unsupported}) {
    packer.add(static_cast<int64_t>(texts->size()));
    for (const auto& [key, value] : *texts) {
      packer.add(key);
      packer.add(value);
    }
  }
  for (const auto& [name, tensor] : content.tensors) {
    packer.add(name);
    packer.add(tensor);
  }
  return packer.bytes();
}

Safetensors unpack(const std::string& bytes) {
  Safetensors content;
  Unpacker unpacker(bytes);
  for (auto* texts : {&content.metadata, &content.unsupported}) {
    for (int64_t left = unpacker.number(); left > 0; --left) {
      const std::string key = unpacker.text();
      (*texts)[key] = unpacker.text();
    }
  }
  while (!unpacker.at_end()) {
    const std::string name = unpacker.text();
    content.tensors[name] = unpacker.tensor();
  }
  return content;
}

std::string pack(const Error& error) {
  Packer packer;
  packer.add(error);
  return packer.bytes();
}

Safetensors read(const std::string& path, Workers& workers) {
  if (workers.size() == 1) return read_safetensors(path);
  return unpack(from_chief(workers, "the loading of variables",
                           [&] { return pack(read_safetensors(path)); }));
}

std::string not_supported(const std::string& what) {
  return what + ", whose dtype is not supported";
}

// What `convert` makes of a file's tensors.
Tensors converted(const Safetensors& file,
                  const std::function<Tensors(const Tensors& file)>& convert) {
  Tensors result;
  try {
    result = convert(file.tensors);
  } catch (const std::out_of_range&) {
    if (file.unsupported.empty()) throw;
    const auto& [name, what] = *file.unsupported.begin();
    invalid("what converts the file looks for a tensor that cannot be loaded; ", name, " is ",
            not_supported(what));
  }
  for (const auto& [name, tensor] : result)
    if (!tensor.defined()) invalid("what is to be loaded as \"", name, "\" has no value");
  return result;
}

// What variables and the tensors of a file have in common, and in words what does not fit.
struct Match {
  Loaded loaded;
  std::vector<std::pair<Variable*, Tensor>> values;
  std::vector<std::pair<RowVariable*, VariableRows>> tables;
  std::string problems;
};

void match_table(Variable& variable, RowVariable& table, Tensors& tensors,
                 const LoadOptions& options, Match& match) {
  const bool is_missing = !tensors.contains(numbers_key(variable));
  (is_missing ? match.loaded.missing : match.loaded.variables).push_back(variable.name());
  if (is_missing && options.ignore_missing) return;
  match.problems +=
      take_rows(variable, tensors, match.tables.emplace_back(&table, VariableRows{}).second);
}

// Whether all values of one are among those of the other: 16 bits in 32, or 32 in 64.
bool is_widened(const TensorSpec& from, const TensorSpec& to) {
  return from.shape == to.shape && is_floating(from.dtype) && is_floating(to.dtype) &&
         dtype_size(from.dtype) < dtype_size(to.dtype);
}

void match_variable(Variable& variable, Tensors& tensors, const LoadOptions& options,
                    Match& match) {
  const std::string& name = variable.name();
  const auto node = tensors.extract(name);
  if (node.empty()) {
    match.loaded.missing.push_back(name);
    if (!options.ignore_missing)
      match.problems +=
          str("\n  missing: ", name, " ", variable.spec(),
              tensors.contains(numbers_key(variable))
                  ? ": in the file it makes its rows on first use, and here it has all"
                  : "");
  } else if (node.mapped().spec() == variable.spec()) {
    match.loaded.variables.push_back(name);
    match.values.emplace_back(&variable, node.mapped());
  } else if (is_widened(node.mapped().spec(), variable.spec())) {
    match.loaded.variables.push_back(name);
    match.loaded.widened.push_back(name);
    match.values.emplace_back(&variable, node.mapped().cast(variable.spec().dtype));
  } else {
    match.loaded.other_shapes.push_back(name);
    if (!options.ignore_other_shapes || node.mapped().shape() == variable.spec().shape)
      match.problems +=
          str("\n  ", name, " is ", variable.spec(), ", in the file ", node.mapped().spec());
  }
}

Match match_with(const Variables& variables, Safetensors file, const LoadOptions& options) {
  Match match;
  for (const auto& variable : variables) {
    if (const auto found = file.unsupported.extract(variable->name()))
      match.problems += str("\n  ", variable->name(), " is ", variable->spec(), ", in the file ",
                            not_supported(found.mapped()));
    else if (RowVariable* table = as_row_variable(*variable))
      match_table(*variable, *table, file.tensors, options, match);
    else
      match_variable(*variable, file.tensors, options, match);
  }
  const auto pass_over = [&](const std::string& name, const auto& what) {
    match.loaded.unexpected.push_back(name);
    if (!options.ignore_unexpected) match.problems += str("\n  unexpected: ", name, " ", what);
  };
  for (const auto& [name, tensor] : file.tensors) pass_over(name, tensor.spec());
  for (const auto& [name, what] : file.unsupported) pass_over(name, what);
  return match;
}

// A file of other names altogether is a mistake, whatever may be ignored.
void require_a_name(const std::string& path, const Variables& variables, const Loaded& loaded) {
  constexpr size_t kMostNamed = 5;
  if (variables.empty() || loaded.missing.size() < variables.size()) return;
  invalid(path, " has none of the variables, which are ",
          comma_separated(loaded.missing, {}, kMostNamed), "; it has ",
          loaded.unexpected.empty() ? "no tensors"
                                    : comma_separated(loaded.unexpected, {}, kMostNamed));
}

}  // namespace

bool is_of_each_worker(const Variable& variable) {
  return !is_written_together(variable.synchronization());
}

Snapshot::Snapshot(const Variables& variables, Metadata metadata, Workers& workers,
                   const Tensors& extra)
    : num_variables_(variables.size()), workers_(workers) {
  together(workers, [&] { require_own_names("save", variables); });
  content_ = {.tensors = values_of(variables, workers), .metadata = std::move(metadata)};
  for (const auto& [name, tensor] : extra) content_.tensors[str(kExtra, name)] = tensor;
  together(workers, [&] { require_utf8(content_); });
}

const Tensor* Snapshot::find(const Variable& variable) const {
  for (const std::string& key : {variable.name(), values_key(variable)})
    if (const auto found = content_.tensors.find(key); found != content_.tensors.end())
      return &found->second;
  return nullptr;
}

void Snapshot::write(const std::string& path) const {
  create_folders(std::filesystem::path(path).parent_path().string());
  write_checkpoint_file(path, [&] { write_safetensors(path, content_); });
}

// Paths may differ between workers; what is saved may not.
std::string Snapshot::topic() const { return str("the saving of ", num_variables_, " variables"); }

void Snapshot::save(const std::string& path) const {
  from_chief(workers_, topic(), [&] {
    write(path);
    return std::string();
  });
}

std::optional<Error> Snapshot::try_save(const std::string& path,
                                        const std::function<void()>& then) const {
  const std::string refusal = from_chief(workers_, topic(), [&] {
    const auto refused = try_write([&] {
      write(path);
      then();
    });
    return refused ? pack(*refused) : std::string();
  });
  if (refusal.empty()) return std::nullopt;
  const Error error = Unpacker(refusal).error();
  return workers_.size() > 1 ? Error(error.code(), error.message(), workers_.name(0)) : error;
}

void save_variables(const std::string& path, const Variables& variables, const Metadata& metadata) {
  save_variables(path, variables, metadata, workers_of(variables));
}

void save_variables(const std::string& path, const Variables& variables, const Metadata& metadata,
                    Workers& workers) {
  Snapshot(variables, metadata, workers).save(path);
}

Metadata load_metadata(const std::string& path, Workers& workers) {
  if (workers.size() == 1) return read_safetensors_metadata(path);
  return unpack(from_chief(workers, "the loading of metadata",
                           [&] { return pack({.metadata = read_safetensors_metadata(path)}); }))
      .metadata;
}

std::vector<std::string> find_checkpoints(const std::string& folder, Workers& workers) {
  const std::string packed = from_chief(workers, "the checkpoints in a folder", [&] {
    const std::set<CheckpointFile> files = checkpoint_files(folder);
    Packer packer;
    for (auto file = files.rbegin(); file != files.rend(); ++file) packer.add(file->path);
    return packer.bytes();
  });
  std::vector<std::string> paths;
  for (Unpacker unpacker(packed); !unpacker.at_end();) paths.push_back(unpacker.text());
  return paths;
}

Loaded load_variables(const std::string& path, const Variables& variables,
                      const LoadOptions& options) {
  return load_variables(path, variables, options, workers_of(variables));
}

Loaded load_variables(const std::string& path, const Variables& variables,
                      const LoadOptions& options, Workers& workers) {
  together(workers, [&] { require_own_names("load", variables); });
  Safetensors content = read(path, workers);
  const Safetensors rest{.tensors = take_extra(content.tensors), .metadata = content.metadata};
  if (options.convert)
    content = {.tensors = together(workers, [&] { return converted(content, options.convert); }),
               .metadata = {}};
  Match match = match_with(variables, std::move(content), options);
  together(workers, [&] {
    if (!match.problems.empty()) invalid(path, " does not fit the variables:", match.problems);
    require_a_name(path, variables, match.loaded);
    if (options.check) options.check(rest);
  });
  // Workers on their own that share variables: one of them sets these, and the others go on.
  const bool sets_shared = workers.size() > 1 || workers.is_chief();
  for (auto& [variable, value] : match.values) {
    if (sets_shared || is_of_each_worker(*variable)) variable->assign(value);
    value = Tensor();  // assigned values may lie in memory twice until the next step
  }
  for (const auto& [table, rows] : match.tables)
    if (sets_shared) table->assign_rows(rows);
  match.loaded.metadata = rest.metadata;
  return match.loaded;
}

}  // namespace cohort
