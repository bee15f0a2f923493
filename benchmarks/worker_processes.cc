#include "benchmarks/worker_processes.h"

#include <array>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fcntl.h>
#include <poll.h>
#include <string_view>
#include <sys/socket.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include "core/base/error.h"

namespace cohort::benchmarks {
namespace {

constexpr int kAnswerLimitMs = 600'000;
// More than a strategy waits for the others at its end.
constexpr std::chrono::seconds kEndLimit(90);

// The workers' addresses, as a JSON list.
std::string addresses_of(const std::vector<launcher::ReservedPort>& ports) {
  std::string addresses;
  for (const auto& port : ports)
    addresses += str(addresses.empty() ? "" : ",", '"', port.address(), '"');
  return addresses;
}

void end_process(pid_t id, std::chrono::steady_clock::time_point deadline) {
  while (waitpid(id, nullptr, WNOHANG) == 0) {
    if (std::chrono::steady_clock::now() > deadline) kill(id, SIGKILL);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

}  // namespace

WorkerProcesses::WorkerProcesses(const std::vector<std::string>& arguments, int workers,
                                 int64_t threads)
    : ports_(static_cast<size_t>(workers)) {
  const std::string addresses = addresses_of(ports_);
  for (int w = 0; w < workers; ++w)
    processes_.push_back(start(arguments,
                               str(R"({"cluster":{"worker":[)", addresses,
                                   R"(]},"task":{"type":"worker","index":)", w, "}}"),
                               threads));
}

// All inputs end before anybody is waited for, because each worker waits for the others.
WorkerProcesses::~WorkerProcesses() {
  for (Process& process : processes_) process.to.reset();
  const auto deadline = std::chrono::steady_clock::now() + kEndLimit;
  for (const Process& process : processes_) end_process(process.id, deadline);
}

WorkerProcesses::Process WorkerProcesses::start(const std::vector<std::string>& arguments,
                                                const std::string& tf_config, int64_t threads) {
  std::array<int, 2> input, output;
  // A socket, because writing into a pipe whose reader is dead raises a signal.
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, input.data()) != 0 ||
      pipe2(output.data(), O_CLOEXEC) != 0)
    fail(Code::kResourceExhausted, "cannot make a pipe");
  Process process{fork(), nullptr, nullptr};
  if (process.id == 0) {
    dup2(input[0], STDIN_FILENO);
    dup2(output[1], STDOUT_FILENO);
    setenv("TF_CONFIG", tf_config.c_str(), 1);
    setenv("OMP_NUM_THREADS", std::to_string(threads).c_str(), 1);
    std::vector<char*> argv;
    for (const std::string& argument : arguments)
      argv.push_back(const_cast<char*>(argument.c_str()));
    argv.push_back(nullptr);
    execv("/proc/self/exe", argv.data());
    _exit(127);
  }
  close(input[0]);
  close(output[1]);
  process.to.reset(fdopen(input[1], "w"));
  process.from.reset(fdopen(output[0], "r"));
  if (process.id < 0) fail(Code::kResourceExhausted, "cannot start a process");
  return process;
}

void WorkerProcesses::start_round() {
  constexpr std::string_view kLine = "go\n";
  // That a worker has ended is told when its answer is missing.
  for (const Process& process : processes_)
    send(fileno(process.to.get()), kLine.data(), kLine.size(), MSG_NOSIGNAL);
}

std::vector<std::string> WorkerProcesses::answers() {
  std::vector<std::string> lines;
  for (const Process& process : processes_) {
    std::FILE* from = process.from.get();
    // A line comes in one piece, so that nothing of it is left in the buffer of `from`.
    pollfd readable{fileno(from), POLLIN, 0};
    if (poll(&readable, 1, kAnswerLimitMs) == 0)
      fail(Code::kDeadlineExceeded, "worker:", lines.size(), " of ", count(),
           " has not answered in 10 minutes");
    std::array<char, 1024> line;
    if (std::fgets(line.data(), line.size(), from) == nullptr)
      fail(Code::kAborted, "worker:", lines.size(), " of ", count(), " has ended early");
    lines.emplace_back(line.data());
  }
  return lines;
}

}  // namespace cohort::benchmarks
