#pragma once

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

}  // namespace cohort
