#pragma once

#include <memory>

namespace cohort {

// The process in which something was made. A fork of it lacks its threads, and would use its
// connections and memory behind its back.
class OwnProcess {
 public:
  // Whether this is that process, rather than a fork of it.
  bool is_this() const { return forks_ == forks(); }
  // kFailedPrecondition in a fork; `what`: "a group of ranks".
  void check(const char* what) const {
    if (!is_this()) refuse(what);
  }

 private:
  static int forks();  // from the first process to this one
  [[noreturn]] static void refuse(const char* what);

  const int forks_ = forks();
};

// Deletes in the process in which it was made itself. A fork leaves what it is given as it is for
// ever: the end would wait for threads that are not there, and speak for the other process.
struct EndInOwnProcess {
  template <typename T>
  void operator()(T* object) const {
    if (process.is_this()) delete object;
  }

  OwnProcess process = {};
};
template <typename T>
using OwnedHere = std::unique_ptr<T, EndInOwnProcess>;

}  // namespace cohort
