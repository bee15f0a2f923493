#pragma once

#include <string>

namespace cohort {

// Creates a folder that no other run has and no other user can look into, NAME-XXXXXX with other
// letters for the Xs, in $TMPDIR or else /tmp, and returns its path. It stays until somebody
// removes it. Throws as core/base/file.h says, naming the path.
std::string make_temporary_folder(const std::string& name);

// Such a folder, which is removed with the object, and what is in it too.
class TemporaryFolder {
 public:
  explicit TemporaryFolder(const std::string& name);
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::string& path() const { return path_; }

 private:
  const std::string path_;
};

}  // namespace cohort
