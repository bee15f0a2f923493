#include "core/train/callbacks/state.h"

#include <cstring>

namespace cohort::callbacks {
namespace {

template <typename T>
std::optional<T> scalar_in(const CallbackState& state, const std::string& name) {
  const auto found = state.find(name);
  if (found == state.end()) return std::nullopt;
  const Tensor& value = found->second;
  const TensorSpec expected{dtype_of<T>, {}};
  if (value.spec() != expected)
    invalid("\"", name, "\" is ", value.spec(), ", expected ", expected);
  return *value.data<T>();
}

std::string element(const std::string& list, size_t i) { return str(list, "/", i); }

}  // namespace

std::optional<double> number_in(const CallbackState& state, const std::string& name) {
  return scalar_in<double>(state, name);
}

std::optional<int64_t> integer_in(const CallbackState& state, const std::string& name) {
  return scalar_in<int64_t>(state, name);
}

Tensor tensor_of(const std::string& text) {
  Tensor tensor(DType::kUInt8, {static_cast<int64_t>(text.size())});
  std::memcpy(tensor.raw(), text.data(), text.size());
  return tensor;
}

std::string text_of(const Tensor& tensor) {
  return {static_cast<const char*>(tensor.raw()), tensor.bytes()};
}

void add_list(CallbackState& state, const std::string& name, const std::vector<Tensor>& values) {
  for (size_t i = 0; i < values.size(); ++i) state[element(name, i)] = values[i];
}

std::vector<Tensor> list_in(const CallbackState& state, const std::string& name) {
  std::vector<Tensor> values;
  for (auto found = state.find(element(name, 0)); found != state.end();
       found = state.find(element(name, values.size())))
    values.push_back(found->second);
  return values;
}

}  // namespace cohort::callbacks
