#include "core/base/nearest.h"

#include <algorithm>
#include <numeric>
#include <vector>

namespace cohort {
namespace {

// The least number of inserted, removed and replaced letters between two words.
int edit_distance(std::string_view a, std::string_view b) {
  std::vector<int> row(b.size() + 1);
  std::iota(row.begin(), row.end(), 0);
  for (size_t i = 0; i < a.size(); ++i) {
    int diagonal = row[0]++;
    for (size_t j = 0; j < b.size(); ++j) {
      const int replaced = diagonal + (a[i] != b[j]);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, diagonal + 1, row[j] + 1});
    }
  }
  return row.back();
}

}  // namespace

std::string_view nearest(std::string_view word, std::span<const std::string_view> names) {
  const auto distance = [&](std::string_view name) { return edit_distance(word, name); };
  const auto found = std::ranges::min_element(names, {}, distance);
  if (found == names.end() || distance(*found) > static_cast<int>(found->size() / 2)) return "";
  return *found;
}

}  // namespace cohort
