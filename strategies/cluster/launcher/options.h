#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "strategies/cluster/launcher/node_options.h"
#include "strategies/cluster/launcher/shown_tasks.h"

namespace cohort::launcher {

// What the command line of cohort-run asks for; numbers of workers and parameter servers are those
// of one host.
struct Options {
  int workers = 1;
  int ps = 0;
  bool chief = false;
  bool evaluator = false;
  int restarts = 0;                          // how often a failed run is repeated
  int task_restarts = 0;                     // how often a task is started again alone in a run
  std::chrono::duration<double> grace{30};   // between asking a task to end and killing it
  std::chrono::duration<double> timeout{0};  // of the whole run, restarts included; 0: none
  std::string log_dir;                       // "": no log files
  ShownTasks show;                           // others go to log files alone
  bool bind_to_cores = false;                // each task has cores of its own
  bool quiet = false;       // the launcher itself says nothing but errors and what has failed
  bool no_prefix = false;   // lines of tasks are shown as they are
  bool version = false;     // print the version and do nothing else
  bool standalone = false;  // start a cluster even as one of several tasks of another launcher
  std::optional<NodeOptions> nodes;  // of a job on several hosts
  std::vector<std::string> command;  // the program as the user wrote it, and its arguments

  // Of this host, or the first one of several, where the chief and the evaluator are.
  int tasks() const { return chief + workers + ps + evaluator; }
};

// Flags end at the first argument that is none, or at "--". Errors are kInvalidArgument. With
// --version nothing else counts.
Options parse_options(int argc, char** argv);

// "the run has lasted 60 s (--timeout)".
std::string too_long(double seconds);

// Where the program is that a shell would run for `name`: itself when it holds a slash, else found
// in PATH. kNotFound, kPermissionDenied when it is no executable file or lies in a folder that may
// not be entered, or another code of the system's.
std::string find_program(const std::string& name);

}  // namespace cohort::launcher
