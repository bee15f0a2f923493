#include "core/train/checkpoint.h"

#include <filesystem>
#include <set>

#include "core/base/error.h"
#include "core/base/file.h"
#include "core/distribute/packing.h"
#include "core/train/safetensors.h"

namespace cohort {

namespace {

// Reading a variable that is synchronised on read takes all workers; of others the chief has a
// copy.
Safetensors values_of(const Variables& variables, const Workers& workers) {
  Safetensors content;
  for (const auto& variable : variables)
    if (workers.is_chief() || variable->synchronization() == Synchronization::kOnRead)
      content.tensors[variable->name()] = variable->value();
  return content;
}

void require_different_names(const std::string& path, const Variables& variables) {
  std::set<std::string> names;
  for (const auto& variable : variables)
    if (!names.insert(variable->name()).second)
      invalid(path, ": two variables are named \"", variable->name(), "\"");
}

std::string pack(const Safetensors& content) {
  Packer packer;
  packer.add(static_cast<int64_t>(content.metadata.size()));
  for (const auto& [key, value] : content.metadata) {
    packer.add(key);
    packer.add(value);
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
  for (int64_t left = unpacker.number(); left > 0; --left) {
    const std::string key = unpacker.text();
    content.metadata[key] = unpacker.text();
  }
  while (!unpacker.at_end()) {
    const std::string name = unpacker.text();
    content.tensors[name] = unpacker.tensor();
  }
  return content;
}

Safetensors read(const std::string& path, Workers& workers) {
  if (workers.size() == 1) return read_safetensors(path);
  return unpack(from_chief(workers, "the loading of variables",
                           [&] { return pack(read_safetensors(path)); }));
}

}  // namespace

void save_variables(const std::string& path, const Variables& variables, const Metadata& metadata,
                    Workers& workers) {
  require_different_names(path, variables);
  Safetensors content = values_of(variables, workers);
  content.metadata = metadata;
  from_chief(workers, "the saving of variables", [&] {
    create_folders(std::filesystem::path(path).parent_path().string());
    write_safetensors(path, content);
    return std::string();
  });
}

Metadata load_variables(const std::string& path, const Variables& variables,
                        const LoadOptions& options, Workers& workers) {
  Safetensors content = read(path, workers);
  std::string problems;
  std::vector<std::pair<Variable*, Tensor>> values;
  for (const auto& variable : variables) {
    const auto node = content.tensors.extract(variable->name());
    if (node.empty()) {
      if (!options.ignore_missing)
        problems += str("\n  missing: ", variable->name(), " ", variable->spec());
    } else if (node.mapped().spec() != variable->spec()) {
      problems += str("\n  ", variable->name(), " is ", variable->spec(), ", in the file ",
                      node.mapped().spec());
    } else {
      values.emplace_back(variable.get(), node.mapped());
    }
  }
  if (!options.ignore_unexpected) {
    for (const auto& [name, tensor] : content.tensors)
      problems += str("\n  unexpected: ", name, " ", tensor.spec());
  }
  if (!problems.empty()) invalid(path, " does not fit the variables:", problems);
  // Workers on their own that share variables: one of them sets these, and the others go on.
  const bool sets_shared = workers.size() > 1 || workers.is_chief();
  for (const auto& [variable, value] : values)
    if (sets_shared || variable->synchronization() == Synchronization::kOnRead)
      variable->assign(value);
  return content.metadata;
}

}  // namespace cohort
