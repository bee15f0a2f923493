#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <string_view>
#include <sys/types.h>
#include <vector>

#include "strategies/cluster/net/descriptor.h"

namespace cohort::benchmarks {

using Time = std::chrono::steady_clock::time_point;

// Prints a line for the process that has started this one as a TaskProcess, with the present time.
void say(std::string_view text);

// A function in a process of its own, which can be killed and started again, and which ends with
// the object and with the process that has made it, however that ends. It has a process group of
// its own, so that an interrupt from the terminal reaches the maker alone. To be used while this
// process has one thread. Not synchronised.
class TaskProcess {
 public:
  // What the task has printed: by say(), with the time when it was said (the clock is that of the
  // host), or any other line, with the time when it was read. Where the task is cohort-run, what
  // its tasks have said is behind their names: "[worker:1] step".
  struct Line {
    Time time;
    std::string text;
  };

  // Starts it; `name` is for messages. kResourceExhausted.
  TaskProcess(std::string name, std::function<void()> body);
  ~TaskProcess() { kill_and_bury(); }
  TaskProcess(const TaskProcess&) = delete;
  TaskProcess& operator=(const TaskProcess&) = delete;

  const std::string& name() const { return name_; }
  // Of the process, while it has not ended.
  pid_t id() const { return id_; }
  // Starts it once more, when it has ended. Lines are added to those that there are.
  void start();
  // Returns when it is dead, with all that it has printed read.
  void kill_now();
  // Sends SIGTERM.
  void ask_to_end();
  // From now on it may end by itself.
  void let_end() { is_wanted_ = false; }
  // Takes what has been printed since the last time; does not wait.
  void read();
  // Whether the process is no more.
  bool has_ended();
  // The same, though nobody has asked for it.
  bool has_ended_by_itself() { return has_ended() && is_wanted_; }
  // Of one that has ended: its exit code, or minus the number of the signal.
  int exit_code() const { return exit_code_; }

  // In the order of their times, within each kind.
  const std::vector<Line>& said() const { return said_; }
  const std::vector<Line>& notices() const { return notices_; }

 private:
  void kill_and_bury();
  void take(const std::string& line, Time now);

  const std::string name_;
  const std::function<void()> body_;
  pid_t id_ = -1;
  bool is_wanted_ = false;
  int exit_code_ = 0;
  net::Descriptor output_;
  std::string unfinished_;  // line
  std::vector<Line> said_, notices_;
};

}  // namespace cohort::benchmarks
