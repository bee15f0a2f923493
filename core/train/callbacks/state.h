#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/train/callback.h"

// Numbers, texts and lists in a CallbackState.
namespace cohort::callbacks {

// The number under `name`; nothing where there is none. kInvalidArgument when what is there is not
// a scalar that is float64, or int64.
std::optional<double> number_in(const CallbackState& state, const std::string& name);
std::optional<int64_t> integer_in(const CallbackState& state, const std::string& name);

// The bytes of a text, uint8, and what they say.
Tensor tensor_of(const std::string& text);
std::string text_of(const Tensor& tensor);

// A list is kept as NAME/0, NAME/1 and so on.
void add_list(CallbackState& state, const std::string& name, const std::vector<Tensor>& values);
std::vector<Tensor> list_in(const CallbackState& state, const std::string& name);

}  // namespace cohort::callbacks
