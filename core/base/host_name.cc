#include "core/base/host_name.h"

#include <array>
#include <climits>
#include <unistd.h>

namespace cohort {

std::string host_name(const std::string& otherwise) {
  std::array<char, HOST_NAME_MAX + 1> name{};
  const bool known = gethostname(name.data(), name.size() - 1) == 0 && name[0] != '\0';
  return known ? name.data() : otherwise;
}

}  // namespace cohort
