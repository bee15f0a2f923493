#include "strategies/coordinator/dataset_registry.h"

#include <map>
#include <mutex>
#include <utility>

#include "core/base/error.h"

namespace cohort {
namespace {

struct Registry {
  std::mutex mutex;
  std::map<std::string, DatasetFunction> functions;
};

Registry& registry() {
  static Registry registry;
  return registry;
}

}  // namespace

void register_dataset(const std::string& name, DatasetFunction make) {
  if (name.empty() || !make) invalid("a dataset is registered with a name and a function");
  const std::lock_guard lock(registry().mutex);
  if (!registry().functions.emplace(name, std::move(make)).second)
    fail(Code::kAlreadyExists, "a dataset \"", name, "\" has been registered before");
}

std::vector<std::string> registered_datasets() {
  const std::lock_guard lock(registry().mutex);
  std::vector<std::string> names;
  for (const auto& [name, function] : registry().functions) names.push_back(name);
  return names;
}

data::Dataset coordinator::make_registered_dataset(const std::string& name,
                                                   const InputContext& context) {
  DatasetFunction make;
  {
    const std::lock_guard lock(registry().mutex);
    const auto found = registry().functions.find(name);
    if (found != registry().functions.end()) make = found->second;
  }
  if (make) return make(context);
  std::string names;
  for (const std::string& known : registered_datasets())
    names += str(names.empty() ? "" : ", ", '"', known, '"');
  fail(Code::kNotFound, "no dataset \"", name, "\" is registered (register_dataset); there ",
       names.empty() ? "is none" : "are " + names);
}

}  // namespace cohort
