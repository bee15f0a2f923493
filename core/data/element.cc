#include "core/data/element.h"

#include <algorithm>
#include <ostream>
#include <utility>

#include "core/base/comma_separated.h"

namespace cohort::data {
namespace {

void check_defined(const Field& field) {
  if (!field.tensor.defined()) invalid("tensor \"", field.name, "\" of an element has no value");
}

}  // namespace

Element::Element(std::vector<Field> fields) : fields_(std::move(fields)) {
  for (const Field& field : fields_) {
    check_defined(field);
    if (find(field.name) != &field.tensor)
      invalid("an element has two tensors named \"", field.name, "\"");
  }
}

std::vector<std::string> Element::names() const {
  std::vector<std::string> names;
  for (const Field& field : fields_) names.push_back(field.name);
  return names;
}

const Tensor* Element::find(std::string_view name) const {
  const auto at =
      std::find_if(begin(), end(), [&](const Field& field) { return field.name == name; });
  return at == end() ? nullptr : &at->tensor;
}

const Tensor& Element::operator[](std::string_view name) const {
  if (const Tensor* tensor = find(name)) return *tensor;
  const auto quote = [](const Field& field) { return str('"', field.name, '"'); };
  fail(Code::kNotFound, "no tensor \"", name, "\" in this element; it has ",
       fields_.empty() ? "none" : comma_separated(fields_, quote));
}

void Element::set(std::string_view name, Tensor tensor) {
  Field added{std::string(name), std::move(tensor)};
  check_defined(added);
  const auto at =
      std::find_if(fields_.begin(), fields_.end(), [&](const Field& f) { return f.name == name; });
  if (at == fields_.end())
    fields_.push_back(std::move(added));
  else
    *at = std::move(added);
}

int64_t Element::rows() const {
  if (empty()) invalid("an element without tensors has no rows");
  for (const Field& field : fields_) {
    if (field.tensor.shape().rank() == 0)
      invalid("\"", field.name, "\" is a scalar and has no rows");
    if (field.tensor.shape()[0] != fields_[0].tensor.shape()[0])
      invalid("\"", field.name, "\" has ", field.tensor.shape()[0], " rows where \"",
              fields_[0].name, "\" has ", fields_[0].tensor.shape()[0]);
  }
  return fields_[0].tensor.shape()[0];
}

std::ostream& operator<<(std::ostream& out, const Element& element) {
  const auto in_words = [](const Field& field) {
    return str(field.name, ": ", field.tensor.spec());
  };
  return out << '{' << comma_separated(element.fields(), in_words) << '}';
}

}  // namespace cohort::data
