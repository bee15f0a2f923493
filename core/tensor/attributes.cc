#include "core/tensor/attributes.h"

#include <cstring>

namespace cohort {
namespace {

bool same(const AttributeValue& a, const AttributeValue& b) {
  if (a.index() != b.index()) return false;
  return std::visit(
      [&]<typename T>(const T& x) {
        const T& y = std::get<T>(b);
        if constexpr (std::is_same_v<T, Tensor>) {
          return x.spec() == y.spec() && std::memcmp(x.raw(), y.raw(), x.bytes()) == 0;
        } else {
          return x == y;
        }
      },
      a);
}

}  // namespace

const AttributeValue& Attributes::find(std::string_view name) const {
  const auto it = values_.find(name);
  if (it == values_.end()) invalid("attribute \"", name, "\" is missing");
  return it->second;
}

bool Attributes::operator==(const Attributes& other) const {
  if (values_.size() != other.values_.size()) return false;
  for (auto a = begin(), b = other.begin(); a != end(); ++a, ++b)
    if (a->first != b->first || !same(a->second, b->second)) return false;
  return true;
}

}  // namespace cohort
