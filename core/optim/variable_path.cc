#include "core/optim/variable_path.h"

#include <algorithm>

namespace cohort::optim {
namespace {

std::vector<std::string_view> parts_of(std::string_view path) {
  std::vector<std::string_view> parts;
  for (size_t end = 0; end != path.npos; path.remove_prefix(std::min(end + 1, path.size()))) {
    end = path.find('/');
    parts.push_back(path.substr(0, end));
  }
  return parts;
}

bool is_part_named_by(std::string_view part, std::string_view entry) {
  if (!part.starts_with(entry)) return false;
  part.remove_prefix(entry.size());
  return part.empty() || (part.size() > 1 && part.starts_with('_') &&
                          part.find_first_not_of("0123456789", 1) == part.npos);
}

}  // namespace

bool is_named_by(std::string_view path, std::string_view entry) {
  const std::vector<std::string_view> parts = parts_of(path), named = parts_of(entry);
  return std::search(parts.begin(), parts.end(), named.begin(), named.end(), is_part_named_by) !=
         parts.end();
}

bool is_named_by(std::string_view path, const std::vector<std::string>& entries) {
  return std::any_of(entries.begin(), entries.end(),
                     [&](const std::string& entry) { return is_named_by(path, entry); });
}

}  // namespace cohort::optim
