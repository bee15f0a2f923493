#include "core/base/temporary_folder.h"

#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "core/base/system_error.h"

namespace cohort {

std::string make_temporary_folder(const std::string& name) {
  const char* parent = std::getenv("TMPDIR");
  const bool has_parent = parent != nullptr && *parent != '\0';
  const std::string pattern = str(has_parent ? parent : "/tmp", "/", name, "-XXXXXX");
  std::string path = pattern;
  if (mkdtemp(path.data()) == nullptr) fail_errno("create the folder", pattern);
  return path;
}

TemporaryFolder::TemporaryFolder(const std::string& name) : path_(make_temporary_folder(name)) {}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace cohort
