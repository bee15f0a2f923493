#pragma once

#include <csignal>
#include <string>
#include <utility>

namespace cohort::launcher {

// By this exit code a program says that it saved its state and wants to be started again.
inline constexpr int kResumable = 42;

// "SIGTERM" and so on.
std::string signal_name(int signal);

// How a process ended: a status of waitpid(), or what waitid() tells.
class ExitStatus {
 public:
  ExitStatus() = default;
  explicit ExitStatus(int status) : status_(status) {}
  explicit ExitStatus(const siginfo_t& ended);

  bool was_killed() const;  // by a signal
  bool was_killed_by(int signal) const { return was_killed() && code() == 128 + signal; }
  bool ok() const { return status_ == 0; }
  // What a shell would say: the exit code, or 128 plus the number of the signal.
  int code() const;
  bool resumable() const { return code() == kResumable; }
  // Why the signal was sent, as far as that is known.
  void explain(std::string reason) { reason_ = std::move(reason); }
  // "exited with code 3", "was killed by SIGSEGV (Segmentation fault)" or, where it was explained,
  // "was killed by SIGKILL: the host was out of memory".
  std::string describe() const;

 private:
  int status_ = 0;
  std::string reason_;
};

}  // namespace cohort::launcher
