#pragma once

#include <string>

namespace cohort {

// A file by which one process has something to itself, such as the folder that it is in, while this
// is alive: the system takes the lock from a process that ends, however it does.
class LockFile {
 public:
  // Creates the file, in a folder that is there. kFailedPrecondition with the text `taken` where
  // somebody else has it, be it in this process; one that ends within a second is waited for.
  // Errors as those of core/base/file.h.
  LockFile(std::string path, const std::string& taken);
  // Removes it.
  ~LockFile();
  LockFile(const LockFile&) = delete;
  LockFile& operator=(const LockFile&) = delete;

  // False where the file system has no locks: everybody gets it then.
  bool is_exclusive() const { return is_exclusive_; }

 private:
  int open_and_lock(int access);  // the error of the lock
  bool try_lock();

  const std::string path_;
  int file_ = -1;
  bool is_exclusive_ = false;
};

}  // namespace cohort
