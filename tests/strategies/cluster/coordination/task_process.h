#pragma once

#include <map>
#include <string>
#include <sys/types.h>
#include <vector>

namespace cohort::testing {

// A process of the program `task`. Every wait has a deadline, after which the test fails with what
// was printed. When it is destroyed, the process is killed.
class TaskProcess {
 public:
  explicit TaskProcess(const std::map<std::string, std::string>& environment,
                       const std::vector<std::string>& arguments = {}, int descriptor_limit = 0);
  ~TaskProcess();
  TaskProcess(const TaskProcess&) = delete;
  TaskProcess& operator=(const TaskProcess&) = delete;

  pid_t pid() const { return pid_; }
  // Writes a line to its standard input.
  void tell(const std::string& line);
  // Reads what it prints (both outputs) until that holds `text`; returns all since the start.
  const std::string& wait_for(const std::string& text);
  // Reads what is there.
  const std::string& output();
  void send(int signal) const;
  // Waits for its end: the exit code, or 128 plus the number of the signal that killed it.
  int wait();

 private:
  bool read_some(int milliseconds);

  pid_t pid_ = 0;
  int input_ = -1, output_ = -1;
  bool ended_ = false;
  std::string text_;
};

}  // namespace cohort::testing
