#include "tests/strategies/cluster/coordination/task_process.h"

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <stdexcept>
#include <sys/resource.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include "core/base/error.h"

namespace cohort::testing {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::seconds kPatience(60);

std::vector<char*> pointers(const std::vector<std::string>& texts) {
  std::vector<char*> result;
  for (const std::string& text : texts) result.push_back(const_cast<char*>(text.c_str()));
  result.push_back(nullptr);
  return result;
}

// What the program needs of this one's environment.
std::vector<std::string> with_inherited(const std::map<std::string, std::string>& variables) {
  std::vector<std::string> result;
  for (const auto& [name, value] : variables) result.push_back(str(name, "=", value));
  for (const char* name : {"PATH", "LD_LIBRARY_PATH", "ASAN_OPTIONS", "TSAN_OPTIONS",
                           "UBSAN_OPTIONS", "GRPC_VERBOSITY"}) {
    if (const char* value = std::getenv(name)) result.push_back(str(name, "=", value));
  }
  return result;
}

}  // namespace

TaskProcess::TaskProcess(const std::map<std::string, std::string>& environment,
                         const std::vector<std::string>& arguments, int descriptor_limit) {
  int in[2], out[2];
  if (pipe2(in, O_CLOEXEC) != 0 || pipe2(out, O_CLOEXEC) != 0) throw std::runtime_error("no pipe");
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, in[0], 0);
  posix_spawn_file_actions_adddup2(&actions, out[1], 1);
  posix_spawn_file_actions_adddup2(&actions, out[1], 2);
  const char* program = std::getenv("TASK");
  std::vector<std::string> words = {program ? program : "TASK is not set"};
  words.insert(words.end(), arguments.begin(), arguments.end());
  const std::vector<std::string> variables = with_inherited(environment);
  const int error = posix_spawn(&pid_, words[0].c_str(), &actions, nullptr, pointers(words).data(),
                                pointers(variables).data());
  posix_spawn_file_actions_destroy(&actions);
  close(in[0]);
  close(out[1]);
  input_ = in[1];
  output_ = out[0];
  if (error != 0) throw std::runtime_error("cannot start " + words[0]);
  if (descriptor_limit > 0) {
    const rlimit limit{static_cast<rlim_t>(descriptor_limit),
                       static_cast<rlim_t>(descriptor_limit)};
    if (prlimit(pid_, RLIMIT_NOFILE, &limit, nullptr) != 0) throw std::runtime_error("no prlimit");
  }
}

TaskProcess::~TaskProcess() {
  close(input_);
  if (!ended_) {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  close(output_);
}

void TaskProcess::tell(const std::string& line) {
  const std::string text = line + "\n";
  if (write(input_, text.data(), text.size()) != static_cast<ssize_t>(text.size())) {
    throw std::runtime_error("cannot tell the task " + line + "; it has printed:\n" + text_);
  }
}

const std::string& TaskProcess::wait_for(const std::string& text) {
  const auto deadline = Clock::now() + kPatience;
  while (text_.find(text) == std::string::npos) {
    if (Clock::now() > deadline || !read_some(100)) {
      throw std::runtime_error("the task has not printed '" + text + "' but:\n" + text_);
    }
  }
  return text_;
}

const std::string& TaskProcess::output() {
  size_t before = 0;
  do {
    before = text_.size();
  } while (read_some(0) && text_.size() > before);
  return text_;
}

void TaskProcess::send(int signal) const { kill(pid_, signal); }

int TaskProcess::wait() {
  const auto deadline = Clock::now() + kPatience;
  int status = 0;
  while (waitpid(pid_, &status, WNOHANG) == 0) {
    read_some(5);
    if (Clock::now() > deadline) throw std::runtime_error("the task does not end:\n" + text_);
  }
  ended_ = true;
  output();
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

bool TaskProcess::read_some(int milliseconds) {
  pollfd waiting{.fd = output_, .events = POLLIN, .revents = 0};
  if (poll(&waiting, 1, milliseconds) <= 0) return true;
  char bytes[4096];
  const ssize_t count = read(output_, bytes, sizeof bytes);
  if (count > 0) text_.append(bytes, static_cast<size_t>(count));
  return count > 0 || (count < 0 && errno == EINTR);
}

}  // namespace cohort::testing
