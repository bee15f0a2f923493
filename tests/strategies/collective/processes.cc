#include "tests/strategies/collective/processes.h"

#include <chrono>
#include <fcntl.h>
#include <fstream>
#include <functional>
#include <signal.h>
#include <spawn.h>
#include <sstream>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include <gtest/gtest.h>

#include "core/base/error.h"

extern char** environ;

namespace cohort::testing {
namespace {

constexpr const char* kProgram = "tests/strategies/collective/rank_process";
// What no test needs, however slow the machine.
constexpr std::chrono::seconds kHangLimit{120};

bool await(const std::function<bool()>& condition) {
  const auto deadline = std::chrono::steady_clock::now() + kHangLimit;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return true;
}

pid_t spawn(std::vector<std::string> arguments, const std::string& output) {
  std::vector<char*> pointers;
  for (std::string& argument : arguments) pointers.push_back(argument.data());
  pointers.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, output.c_str(),
                                   O_WRONLY | O_CREAT | O_APPEND, 0600);
  posix_spawn_file_actions_adddup2(&actions, STDOUT_FILENO, STDERR_FILENO);
  pid_t pid = 0;
  const int error = posix_spawn(&pid, kProgram, &actions, nullptr, pointers.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) fail(Code::kUnavailable, "cannot start ", kProgram);
  return pid;
}

}  // namespace

Processes::Processes(const Options& options) {
  for (int p = 0; p < options.processes; ++p) {
    std::vector<std::string> arguments{kProgram,
                                       options.scenario,
                                       folder_.path(),
                                       std::to_string(p),
                                       std::to_string(options.processes),
                                       std::to_string(options.ranks_per_process),
                                       std::to_string(options.limit_ms),
                                       options.hosts,
                                       p == options.denied_process ? options.denial : ""};
    pids_.push_back(spawn(arguments, file(p)));
  }
}

Processes::~Processes() {
  for (const pid_t pid : pids_) {
    if (pid == 0) continue;
    kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);
  }
}

void Processes::await_output(int process, const std::string& text) {
  EXPECT_TRUE(await([&] { return output(process).find(text) != std::string::npos; }))
      << "process " << process << " does not print " << text << " but\n"
      << output(process);
}

int Processes::wait(int process) {
  pid_t& pid = pids_[static_cast<size_t>(process)];
  int status = 0;
  if (!await([&] { return waitpid(pid, &status, WNOHANG) == pid; })) return -1;
  pid = 0;
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

std::string Processes::output(int process) const {
  std::ifstream stream(file(process));
  std::ostringstream text;
  text << stream.rdbuf();
  return text.str();
}

std::string Processes::file(int process) const {
  return folder_.path() + "/output-" + std::to_string(process);
}

}  // namespace cohort::testing
