#pragma once

#include <span>
#include <string_view>

namespace cohort {

// The one of `names` for which `word` is most likely a slip of the pen: by the fewest letters to be
// inserted, removed and replaced. "" where that would be more than half of it, which is none.
std::string_view nearest(std::string_view word, std::span<const std::string_view> names);

}  // namespace cohort
