#include "core/graph/op.h"

#include <algorithm>
#include <map>

#include "core/base/comma_separated.h"
#include "core/graph/registry.h"

namespace cohort {
namespace {

std::map<std::string, OpDef, std::less<>>& registry() {
  static std::map<std::string, OpDef, std::less<>> ops;
  return ops;
}

}  // namespace

std::vector<Value> no_gradient(const Node& node, const std::vector<Value>&) {
  return std::vector<Value>(node.inputs().size());
}

const OpDef& find_op(std::string_view name) {
  const auto it = registry().find(name);
  if (it == registry().end()) fail(Code::kNotFound, "there is no op \"", name, "\"");
  return it->second;
}

void check_attributes(const OpDef& op, const Attributes& attributes) {
  const auto& known = op.attributes;
  for (const auto& [name, value] : attributes)
    if (std::find(known.begin(), known.end(), name) == known.end())
      invalid("op ", op.name, " takes no attribute \"", name,
              "\" (allowed: ", known.empty() ? "none" : comma_separated(known), ')');
}

std::vector<std::string> registered_ops() {
  std::vector<std::string> names;
  for (const auto& [name, def] : registry()) names.push_back(name);
  return names;
}

OpRegistration::OpRegistration(OpDef def) {
  std::string name = def.name;
  COHORT_CHECK(registry().emplace(std::move(name), std::move(def)).second);
}

}  // namespace cohort
