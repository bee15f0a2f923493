#include "benchmarks/task_process.h"

#include <array>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>

#include "core/base/program.h"
#include "strategies/cluster/launcher/pipe.h"
#include "strategies/cluster/launcher/system_error.h"

namespace cohort::benchmarks {
namespace {

constexpr char kSaid = '@';  // begins a line of say(), before the nanoseconds of the clock

// Where in a line that of say() begins: behind the name by which cohort-run shows whose it is.
size_t begin_of(const std::string& line) {
  const size_t name_end = line.starts_with('[') ? line.find("] ") : std::string::npos;
  return name_end == std::string::npos ? 0 : name_end + 2;
}

int code_of(int status) { return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status); }

// In the new process.
[[noreturn]] void become(const std::function<void()>& body, int output, pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);  // it died before the line above
  setpgid(0, 0);
  dup2(output, STDOUT_FILENO);
  dup2(output, STDERR_FILENO);
  const int code = run_main(body);
  std::fflush(nullptr);
  _exit(code);
}

}  // namespace

void say(std::string_view text) {
  const auto now = std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch());
  std::printf("%c%lld %.*s\n", kSaid, static_cast<long long>(now.count()),
              static_cast<int>(text.size()), text.data());
  std::fflush(stdout);
}

TaskProcess::TaskProcess(std::string name, std::function<void()> body)
    : name_(std::move(name)), body_(std::move(body)) {
  start();
}

void TaskProcess::start() {
  launcher::Pipe pipe = launcher::make_pipe();
  std::fflush(nullptr);  // or the new process prints it, too
  const pid_t parent = getpid();
  const pid_t id = fork();
  if (id < 0) launcher::fail_system("cannot start ", name_);
  if (id == 0) become(body_, pipe.write_end.get(), parent);
  id_ = id;
  is_wanted_ = true;
  output_ = std::move(pipe.read_end);
  fcntl(output_.get(), F_SETFL, fcntl(output_.get(), F_GETFL) | O_NONBLOCK);
  unfinished_.clear();
}

void TaskProcess::kill_and_bury() {
  is_wanted_ = false;
  if (id_ < 0) return;
  kill(id_, SIGKILL);
  int status = 0;
  waitpid(id_, &status, 0);
  exit_code_ = code_of(status);
  id_ = -1;
}

void TaskProcess::kill_now() {
  kill_and_bury();
  read();
}

void TaskProcess::ask_to_end() {
  is_wanted_ = false;
  if (id_ > 0) kill(id_, SIGTERM);
}

bool TaskProcess::has_ended() {
  int status = 0;
  if (id_ > 0 && waitpid(id_, &status, WNOHANG) == id_) {
    exit_code_ = code_of(status);
    id_ = -1;
    read();
  }
  return id_ < 0;
}

void TaskProcess::read() {
  std::array<char, 4096> bytes;
  for (ssize_t count; (count = ::read(output_.get(), bytes.data(), bytes.size())) > 0;)
    unfinished_.append(bytes.data(), static_cast<size_t>(count));
  const Time now = std::chrono::steady_clock::now();
  for (size_t end; (end = unfinished_.find('\n')) != std::string::npos;) {
    take(unfinished_.substr(0, end), now);
    unfinished_.erase(0, end + 1);
  }
}

void TaskProcess::take(const std::string& line, Time now) {
  const size_t begin = begin_of(line);
  if (begin == line.size() || line[begin] != kSaid) return notices_.push_back({now, line});
  char* text = nullptr;
  const std::chrono::nanoseconds time(std::strtoll(line.c_str() + begin + 1, &text, 10));
  said_.push_back({Time(time), line.substr(0, begin) + (*text == ' ' ? text + 1 : text)});
}

}  // namespace cohort::benchmarks
