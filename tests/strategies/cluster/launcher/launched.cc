#include "tests/strategies/cluster/launcher/launched.h"

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <dirent.h>
#include <fcntl.h>
#include <fstream>
#include <iterator>
#include <poll.h>
#include <pty.h>
#include <sstream>
#include <stdexcept>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include <gtest/gtest.h>

namespace cohort::testing {
namespace {

constexpr double kPatience = 90;  // seconds for a whole launch
constexpr char kMark[] = "COHORT_TEST_MARK=";

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::string needed_variable(const char* name) {
  const char* value = std::getenv(name);
  if (!value) throw std::runtime_error(std::string(name) + " is unset: run this test by Bazel");
  return value;
}

// The processes that carry `mark` in their environment. One that has ended and waits to be buried
// carries none.
std::vector<pid_t> marked_processes(const std::string& mark) {
  std::vector<pid_t> out;
  DIR* folder = opendir("/proc");
  while (const dirent* entry = readdir(folder)) {
    const pid_t pid = std::atoi(entry->d_name);
    if (pid <= 0) continue;
    std::ifstream file(std::string("/proc/") + entry->d_name + "/environ", std::ios::binary);
    const std::string environment{std::istreambuf_iterator<char>(file), {}};
    if (environment.find(mark) != std::string::npos) out.push_back(pid);
  }
  closedir(folder);
  return out;
}

std::string fresh_mark() {
  static int launches = 0;
  return std::string(kMark) + std::to_string(getpid()) + "-" + std::to_string(++launches);
}

std::vector<char*> pointers(std::vector<std::string>& strings) {
  std::vector<char*> out;
  for (auto& text : strings) out.push_back(text.data());
  out.push_back(nullptr);
  return out;
}

std::vector<std::string> environment_of(const Launch& launch, const std::string& mark) {
  std::vector<std::string> out = {mark + ";", "PATH=/usr/bin:/bin", "TERM=xterm"};
  for (const char* name : {"LD_LIBRARY_PATH", "ASAN_OPTIONS", "UBSAN_OPTIONS", "TSAN_OPTIONS"}) {
    if (const char* value = std::getenv(name)) out.push_back(std::string(name) + "=" + value);
  }
  for (const auto& [name, value] : launch.environment) {
    out.push_back(std::string(name).append("=").append(value));
  }
  return out;
}

std::vector<std::string> arguments_of(const Launch& launch) {
  std::vector<std::string> out = {needed_variable("COHORT_RUN")};
  out.insert(out.end(), launch.flags.begin(), launch.flags.end());
  out.push_back(launch.program.empty() ? needed_variable("ACTOR") : launch.program);
  if (out.back() == "none") out.pop_back();
  out.insert(out.end(), launch.actions.begin(), launch.actions.end());
  return out;
}

void limit_files(const Launch& launch) {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  if (launch.soft_files > 0) limit.rlim_cur = launch.soft_files;
  if (launch.hard_files > 0) limit.rlim_max = launch.hard_files;
  setrlimit(RLIMIT_NOFILE, &limit);
}

void limit_file_size(long bytes) {
  const auto longest = static_cast<rlim_t>(bytes);
  const rlimit limit{longest, longest};
  if (setrlimit(RLIMIT_FSIZE, &limit) != 0) _exit(127);
}

int count(const std::string& text, const std::string& part) {
  int found = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

}  // namespace

Launched::Launched(const Launch& launch) : mark_(fresh_mark()), deadline_(now() + kPatience) {
  auto arguments = arguments_of(launch), environment = environment_of(launch, mark_);
  int output[2], errors[2];
  if (launch.on_terminal) {
    if (openpty(&output[0], &output[1], nullptr, nullptr, nullptr) != 0) {
      throw std::runtime_error("no terminal");
    }
    fcntl(output[0], F_SETFD, FD_CLOEXEC);
    fcntl(output[1], F_SETFD, FD_CLOEXEC);
  } else if (pipe2(output, O_CLOEXEC) != 0) {
    throw std::runtime_error("no pipe");
  }
  if (pipe2(errors, O_CLOEXEC) != 0) throw std::runtime_error("no pipe");
  pid_ = fork();
  if (pid_ == 0) {
    dup2(launch.full_disk ? open("/dev/full", O_WRONLY | O_CLOEXEC) : output[1], STDOUT_FILENO);
    dup2(launch.one_stream || launch.on_terminal ? STDOUT_FILENO : errors[1], STDERR_FILENO);
    limit_files(launch);
    if (launch.is_job) {
      setpgid(0, 0);
      prctl(PR_SET_PDEATHSIG, SIGKILL);  // whoever ends this test by its group does not see it
    }
    if (launch.ignored_signal) std::signal(launch.ignored_signal, SIG_IGN);
    if (launch.longest_file >= 0) limit_file_size(launch.longest_file);
    execve(arguments[0].c_str(), pointers(arguments).data(), pointers(environment).data());
    _exit(127);
  }
  close(output[1]);
  close(errors[1]);
  streams_[0].descriptor = output[0];
  streams_[1].descriptor = errors[0];
}

Launched::~Launched() {
  try {
    if (!waited_) wait();
    wait_until_nothing_is_left();
  } catch (const std::runtime_error&) {  // reported already
  }
  for (const Stream& stream : streams_) {
    if (stream.descriptor >= 0) close(stream.descriptor);
  }
}

void Launched::wait_until_output_waits() {
  // The launcher fills the pipe by pieces of up to a page, which need not fill their pages.
  const int capacity = fcntl(streams_[0].descriptor, F_GETPIPE_SZ);
  for (int size = 0; size < capacity / 2;) {
    check_deadline("a full pipe");
    read_streams(1, 1);
    ioctl(streams_[0].descriptor, FIONREAD, &size);
  }
}

void Launched::wait_for_end_of_errors() {
  while (read_streams(1, 1)) check_deadline("the end of all that is printed as errors");
}

void Launched::send(int signal) const { kill(pid_, signal); }

void Launched::send_until_errors(int signal, const std::string& text) {
  while (count(errors(), text) == 0) {
    check_deadline("\"" + text + "\"");
    send(signal);
    read_streams(0, 1);
  }
}

void Launched::stop_reading() {
  close(streams_[0].descriptor);
  streams_[0].descriptor = -1;
}

void Launched::wait_for(size_t stream, const std::string& text, int times) {
  while (count(streams_[stream].text, text) < times) {
    check_deadline("\"" + text + "\"");
    if (!read_streams(stream, stream)) {
      throw std::runtime_error("ended before printing \"" + text + "\":\n" + streams_[0].text +
                               streams_[1].text);
    }
  }
}

int Launched::wait() {
  while (read_streams(0, 1)) check_deadline("the end");
  int status = 0;
  waitpid(pid_, &status, 0);
  waited_ = true;
  if (WIFSIGNALED(status)) return 128 + WTERMSIG(status);
  EXPECT_EQ(marked_processes(mark_ + ";"), std::vector<pid_t>()) << "left behind";
  return WEXITSTATUS(status);
}

void Launched::wait_until_nothing_is_left() {
  while (!marked_processes(mark_ + ";").empty()) {
    check_deadline("the end of all processes");
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

bool Launched::read_streams(size_t first, size_t last) {
  pollfd events[2] = {{-1, POLLIN, 0}, {-1, POLLIN, 0}};
  for (size_t i = first; i <= last; ++i) events[i].fd = streams_[i].descriptor;
  if (events[0].fd < 0 && events[1].fd < 0) return false;
  poll(events, 2, 100);
  for (size_t i = first; i <= last; ++i) {
    if (!events[i].revents) continue;
    char bytes[1 << 14];
    const ssize_t size = read(streams_[i].descriptor, bytes, sizeof(bytes));
    if (size > 0) {
      streams_[i].text.append(bytes, static_cast<size_t>(size));
    } else {  // a terminal without writers gives an error
      close(streams_[i].descriptor);
      streams_[i].descriptor = -1;
    }
  }
  return true;
}

void Launched::check_deadline(const std::string& what) {
  if (now() < deadline_) return;
  for (const pid_t pid : marked_processes(mark_ + ";")) kill(pid, SIGKILL);
  deadline_ += kPatience;  // for those that wait for their end
  ADD_FAILURE() << "waited in vain for " << what << "; printed until then:\n"
                << streams_[0].text.substr(0, 10000) << streams_[1].text.substr(0, 10000);
  throw std::runtime_error("deadline exceeded");
}

Finished finish(const Launch& launch) {
  Launched launched(launch);
  const int code = launched.wait();
  return {code, launched.output(), launched.errors()};
}

std::vector<std::string> lines_of(const std::string& text, const std::string& prefix) {
  std::vector<std::string> out;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) {
    if (line.starts_with(prefix)) out.push_back(line.substr(prefix.size()));
  }
  return out;
}

std::string shown(const std::string& output, const std::string& task, const std::string& variable) {
  const auto values = lines_of(output, "[" + task + "] " + variable);
  EXPECT_EQ(values.size(), 1) << task << " " << variable << "\n" << output;
  if (values.empty()) return "nothing";
  return values[0].starts_with("=") ? values[0].substr(1) : values[0];
}

std::vector<pid_t> children_of(pid_t pid) {
  const std::string id = std::to_string(pid);
  std::ifstream file("/proc/" + id + "/task/" + id + "/children");
  return {std::istream_iterator<pid_t>(file), {}};
}

pid_t supervisor_of(const Launched& launched) {
  const auto children = children_of(launched.pid());
  if (children.size() != 1) throw std::runtime_error("cohort-run has no supervisor");
  return children[0];
}

std::vector<pid_t> processes_of(const Launched& launched) {
  std::vector<pid_t> out = {launched.pid()};
  for (size_t i = 0; i < out.size(); ++i) {
    const auto children = children_of(out[i]);
    out.insert(out.end(), children.begin(), children.end());
  }
  return out;
}

bool is_stopped(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const size_t name_end = text.rfind(')');
  return name_end != std::string::npos && text.substr(name_end, 3) == ") T";
}

}  // namespace cohort::testing
