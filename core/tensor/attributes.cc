#include "core/tensor/attributes.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>

namespace cohort {
namespace {

template <typename T>
std::strong_ordering compare(const T& a, const T& b) {
  return a <=> b;
}

std::strong_ordering compare(double a, double b) {
  return std::bit_cast<uint64_t>(a) <=> std::bit_cast<uint64_t>(b);
}

std::strong_ordering compare(const Tensor& a, const Tensor& b) {
  if (a.dtype() != b.dtype()) return a.dtype() <=> b.dtype();
  if (a.shape() != b.shape()) return a.shape().to_vector() <=> b.shape().to_vector();
  return std::memcmp(a.raw(), b.raw(), a.bytes()) <=> 0;
}

std::strong_ordering compare(const AttributeValue& a, const AttributeValue& b) {
  if (a.index() != b.index()) return a.index() <=> b.index();
  return std::visit([&]<typename T>(const T& value) { return compare(value, std::get<T>(b)); }, a);
}

}  // namespace

const AttributeValue& Attributes::find(std::string_view name) const {
  const auto it = values_.find(name);
  if (it == values_.end()) invalid("attribute \"", name, "\" is missing");
  return it->second;
}

std::strong_ordering Attributes::operator<=>(const Attributes& other) const {
  return std::lexicographical_compare_three_way(
      begin(), end(), other.begin(), other.end(), [](const auto& a, const auto& b) {
        return a.first != b.first ? a.first <=> b.first : compare(a.second, b.second);
      });
}

}  // namespace cohort
