#pragma once

#include <compare>
#include <map>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "core/tensor/tensor.h"

namespace cohort {

// One static parameter of an op. The order of alternatives is part of the serialised graph format.
using AttributeValue =
    std::variant<bool, int64_t, double, std::string, std::vector<int64_t>, DType, Tensor>;

// The static parameters of an op by name. A value type; lookups of what is missing or of another
// type throw kInvalidArgument naming the attribute.
class Attributes {
 public:
  Attributes() = default;
  Attributes(std::initializer_list<std::pair<const std::string, AttributeValue>> values)
      : values_(values) {}

  bool has(std::string_view name) const { return values_.find(name) != values_.end(); }
  template <typename T>
  const T& get(std::string_view name) const {
    const T* value = std::get_if<T>(&find(name));
    if (value == nullptr) invalid("attribute \"", name, "\" has another type than asked for");
    return *value;
  }
  template <typename T>
  T get_or(std::string_view name, T fallback) const {
    return has(name) ? get<T>(name) : fallback;
  }
  void set(std::string name, AttributeValue value) { values_[std::move(name)] = std::move(value); }

  auto begin() const { return values_.begin(); }
  auto end() const { return values_.end(); }
  // By names, types and values; doubles are compared by their bits, tensors by spec and bytes, so
  // that no op can tell equal ones apart.
  std::strong_ordering operator<=>(const Attributes& other) const;
  bool operator==(const Attributes& other) const { return std::is_eq(*this <=> other); }

 private:
  const AttributeValue& find(std::string_view name) const;

  std::map<std::string, AttributeValue, std::less<>> values_;
};

}  // namespace cohort
