#include "core/train/checkpoint.h"

#include <filesystem>

#include "core/base/error.h"
#include "core/base/file.h"
#include "core/train/safetensors.h"

namespace cohort {

void save_variables(const std::string& path, const Variables& variables, const Metadata& metadata) {
  Safetensors content{.metadata = metadata};
  for (const auto& variable : variables) {
    if (!content.tensors.try_emplace(variable->name(), variable->value()).second) {
      invalid(path, ": two variables are named \"", variable->name(), "\"");
    }
  }
  create_folders(std::filesystem::path(path).parent_path().string());
  write_safetensors(path, content);
}

Metadata load_variables(const std::string& path, const Variables& variables,
                        const LoadOptions& options) {
  Safetensors content = read_safetensors(path);
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
  for (const auto& [variable, value] : values) variable->assign(value);
  return content.metadata;
}

}  // namespace cohort
