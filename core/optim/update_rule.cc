#include "core/optim/update_rule.h"

#include <cstdlib>
#include <cxxabi.h>
#include <memory>
#include <set>
#include <typeinfo>

namespace cohort::optim {
namespace {

// The name of its class.
std::string name_of(const UpdateRule& rule) {
  const char* const mangled = typeid(rule).name();
  const std::unique_ptr<char, decltype(&std::free)> name(
      abi::__cxa_demangle(mangled, nullptr, nullptr, nullptr), &std::free);
  return name ? name.get() : mangled;
}

}  // namespace

void check_slots(const UpdateRule& rule) {
  std::set<std::string> names;
  for (const UpdateRule::Slot& slot : rule.slots())
    if (!names.insert(slot.name).second)
      invalid("the update rule ", name_of(rule), " has two slots named \"", slot.name, '"');
}

Value apply_rule(const UpdateRule& rule, const Value& variable, const Value& gradient,
                 std::vector<Value>& slots, const std::vector<Value>& scalars) {
  const size_t given = slots.size();
  Value updated = rule.update(variable, gradient, slots, scalars);
  if (slots.size() != given)
    invalid("the update rule ", name_of(rule), " was given ", given, " slots, and leaves ",
            slots.size(), ": update() replaces their values, and not their number");
  return updated;
}

}  // namespace cohort::optim
