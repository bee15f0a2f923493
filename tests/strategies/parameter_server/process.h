#pragma once

#include <chrono>
#include <csignal>
#include <fcntl.h>
#include <fstream>
#include <map>
#include <string>
#include <sys/resource.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/base/file.h"

namespace cohort::testing {

inline constexpr auto kProcessPatience = std::chrono::seconds(60);

// A task in a process of its own, which is killed with this object. What it prints is added to a
// file.
class Process {
 public:
  // `environment` goes in front of this process's own.
  Process(const std::string& program, std::vector<std::string> arguments, std::string output,
          const std::map<std::string, std::string>& environment = {})
      : output_(std::move(output)) {
    arguments.insert(arguments.begin(), program);
    std::vector<std::string> variables;
    for (const auto& [name, value] : environment) variables.push_back(str(name, "=", value));
    std::vector<char*> argv, envp;
    for (std::string& argument : arguments) argv.push_back(argument.data());
    for (std::string& variable : variables) envp.push_back(variable.data());
    for (char** variable = environ; *variable != nullptr; ++variable) envp.push_back(*variable);
    argv.push_back(nullptr);
    envp.push_back(nullptr);
    const int file = open(output_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    pid_ = fork();
    if (pid_ == 0) {
      dup2(file, STDOUT_FILENO);
      dup2(file, STDERR_FILENO);
      execve(argv[0], argv.data(), envp.data());
      _exit(127);
    }
    close(file);
  }
  ~Process() { kill_now(); }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  pid_t pid() const { return pid_; }
  // By a name of /proc/PID/status, "VmRSS", in bytes; 0 where there is none.
  size_t memory(const std::string& name) const {
    std::ifstream status(str("/proc/", pid_, "/status"));
    for (std::string line; std::getline(status, line);)
      if (line.starts_with(name + ":")) return std::stoull(line.substr(name.size() + 1)) << 10;
    return 0;
  }
  // Sets a soft limit, so that it can be raised again; whether that could be done.
  bool limit(__rlimit_resource resource, rlim_t value) const {
    rlimit limit{};
    if (prlimit(pid_, resource, nullptr, &limit) != 0) return false;
    limit.rlim_cur = value;
    return prlimit(pid_, resource, &limit, nullptr) == 0;
  }
  void send(int signal) { kill(pid_, signal); }
  // Returns when none of its threads moves any more; SIGCONT thaws it.
  void freeze() {
    siginfo_t stopped;
    send(SIGSTOP);
    waitid(P_PID, static_cast<id_t>(pid_), &stopped, WSTOPPED);
  }
  void kill_now() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }
  // The exit status; -1 when it takes too long.
  int join() {
    const auto end = std::chrono::steady_clock::now() + kProcessPatience;
    for (int status = 0; std::chrono::steady_clock::now() < end;) {
      if (waitpid(pid_, &status, WNOHANG) == pid_) {
        pid_ = -1;
        return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    return -1;
  }
  int lines(const std::string& word) const {
    const std::string text = read_file(output_);
    int count = 0;
    for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1))
      ++count;
    return count;
  }
  bool wait_for_lines(const std::string& word, int count) const {
    const auto end = std::chrono::steady_clock::now() + kProcessPatience;
    while (lines(word) < count) {
      if (std::chrono::steady_clock::now() > end) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return true;
  }

 private:
  std::string output_;
  pid_t pid_ = -1;
};

}  // namespace cohort::testing
