#pragma once

#include <optional>
#include <string>

namespace cohort::testing {

// Makes gpu:0 and gpu:1 of `memory_limit` bytes each; or says why there are none.
std::string make_two_gpus(size_t memory_limit);

// Whether this process has taken the first card into use; nothing where there is no card.
std::optional<bool> first_card_in_use();

}  // namespace cohort::testing
