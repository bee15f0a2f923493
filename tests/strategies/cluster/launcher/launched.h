#pragma once

#include <fstream>
#include <map>
#include <string>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <vector>

namespace cohort::testing {

// An empty file, as of what tasks wait for (await_file).
inline void touch(const std::string& path) { const std::ofstream file(path); }
// One that can be run, as far as its mode goes.
inline void write_script(const std::string& path, const std::string& text) {
  std::ofstream(path) << text;
  chmod(path.c_str(), 0755);
}

// How cohort-run is started.
struct Launch {
  std::vector<std::string> flags;
  std::vector<std::string> actions;                     // of the actor that every task is
  std::map<std::string, std::string> environment = {};  // added to a plain one
  bool one_stream = false;   // standard error goes where standard output goes
  bool on_terminal = false;  // both are a terminal
  bool full_disk = false;    // standard output is a file on a disk without space
  int ignored_signal = 0;    // as nohup does
  long longest_file = -1;    // in bytes, as by `ulimit -f`; -1: no limit
  std::string program;       // instead of the actor
  // Limits of open files, as of `ulimit -n`; 0: those of the test.
  rlim_t soft_files = 0, hard_files = 0;
  bool is_job = false;  // a process group of its own, as a shell makes one that it can continue
};

// A running cohort-run. Every wait has a deadline, after which everything is killed and the test
// fails with what was printed. When it is destroyed, no process of the launch may be left.
class Launched {
 public:
  explicit Launched(const Launch& launch);
  ~Launched();
  Launched(const Launched&) = delete;
  Launched& operator=(const Launched&) = delete;

  pid_t pid() const { return pid_; }
  // What has been read so far.
  const std::string& output() const { return streams_[0].text; }
  const std::string& errors() const { return streams_[1].text; }

  // Reads until what was printed holds `text` `times` times.
  void wait_for_output(const std::string& text, int times = 1) { wait_for(0, text, times); }
  void wait_for_errors(const std::string& text, int times = 1) { wait_for(1, text, times); }
  // Reads no standard output, until the launcher and its tasks have to wait for that.
  void wait_until_output_waits();
  // Reads no standard output, until nobody who could print errors is left.
  void wait_for_end_of_errors();
  void send(int signal) const;
  // Sends it again and again, until what was printed as errors holds `text`.
  void send_until_errors(int signal, const std::string& text);
  // As if nobody read the standard output any more.
  void stop_reading();
  // Reads all and returns the exit code, 128 plus the number of the signal that killed it. Unless
  // one did, nothing that it started may be left by then. To be called once.
  int wait();
  // Waits until no process of the launch is left.
  void wait_until_nothing_is_left();

 private:
  struct Stream {
    int descriptor = -1;
    std::string text;
  };
  void wait_for(size_t stream, const std::string& text, int times);
  // Reads what is there from all streams, or from one alone; false when all of them have ended.
  bool read_streams(size_t first, size_t last);
  void check_deadline(const std::string& what);

  std::string mark_;  // in the environment of each of its processes
  double deadline_;
  pid_t pid_ = 0;
  bool waited_ = false;
  Stream streams_[2];
};

// The exit code and all that was printed.
struct Finished {
  int code = 0;
  std::string output, errors;
};
Finished finish(const Launch& launch);

// The lines of `text` that begin with `prefix`, without it.
std::vector<std::string> lines_of(const std::string& text, const std::string& prefix);
// What a task has shown of a variable of its environment; " is unset" where it has none.
std::string shown(const std::string& output, const std::string& task, const std::string& variable);

// The processes below `pid`, one level deep.
std::vector<pid_t> children_of(pid_t pid);
// The one below a running cohort-run, of which the tasks are children.
pid_t supervisor_of(const Launched& launched);
// The guard, its supervisor and that one's tasks.
std::vector<pid_t> processes_of(const Launched& launched);
// Whether it is stopped, as by SIGSTOP.
bool is_stopped(pid_t pid);

}  // namespace cohort::testing
