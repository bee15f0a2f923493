#include "core/base/program.h"

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <exception>
#include <fcntl.h>
#include <mutex>
#include <new>
#include <stdio_ext.h>
#include <string_view>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/notice.h"
#include "core/base/quote.h"
#include "core/base/system_error.h"

namespace cohort {
namespace {

using Handler = void (*)(int);

// As by default, but also where this is the first process of a container, which the kernel spares
// what it does not handle.
void end_by(int signal) {
  if (::getpid() == 1) ::_exit(128 + signal);
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

// Of a signal that nobody has a use for now.
Handler default_handler() { return ::getpid() == 1 ? end_by : SIG_DFL; }
bool is_default(Handler handler) { return handler == SIG_DFL || handler == end_by; }

std::atomic<StopRequest> the_request = StopRequest::kNone;
static_assert(std::atomic<StopRequest>::is_always_lock_free, "a signal handler stores to it");

// The arrivals of a signal that asks for a stop, and ends the process when it asks again.
class Arrivals {
 public:
  bool any() const { return first_ != 0; }
  void forget() { first_ = 0; }
  // In the signal's handler: whether this is the first. If it is of another request than the first,
  // the process ends when the handler returns.
  bool take(int signal) {
    timespec time{};
    ::clock_gettime(CLOCK_MONOTONIC, &time);
    const int64_t now = time.tv_sec * 1'000'000'000 + time.tv_nsec;
    int64_t first = 0;
    if (first_.compare_exchange_strong(first, now)) return true;
    if (std::chrono::nanoseconds(now - first) > kSameRequest) end_by(signal);
    return false;
  }

 private:
  std::atomic<int64_t> first_ = 0;  // in nanoseconds of the steady clock; 0 before it
  static_assert(std::atomic<int64_t>::is_always_lock_free, "a signal handler stores to it");
};

Arrivals interrupts, terminations;

// Who looks at a terminal is told, since what does not train may not look for requests to stop.
void on_interrupt(int signal) {
  constexpr std::string_view kSaid =
      "\ninterrupt: what trains stops after its present step; another one ends the program at "
      "once\n";
  the_request = StopRequest::kInterrupt;
  const int error = errno;
  if (interrupts.take(signal) && ::isatty(STDERR_FILENO) != 0) {
    [[maybe_unused]] const auto written = ::write(STDERR_FILENO, kSaid.data(), kSaid.size());
  }
  errno = error;
}

// Of signals that are requests however often they come. When a terminal closes, both the system and
// the shell send SIGHUP; SIGTERM may follow the SIGUSR1 or SIGUSR2 that has warned of it; and from
// its limit on a process gets SIGXCPU each second.
constexpr int kRepeatable[] = {SIGHUP, SIGUSR1, SIGUSR2, SIGXCPU};
void on_repeatable(int) { the_request = StopRequest::kTermination; }

void on_termination(int signal) {
  the_request = StopRequest::kTermination;
  terminations.take(signal);
}

struct sigaction action_of(Handler handler) {
  struct sigaction action {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;
  return action;
}

Handler handler_of(int signal) {
  struct sigaction action {};
  sigaction(signal, nullptr, &action);
  return action.sa_handler;
}

void handle_if_default(int signal, Handler handler) {
  const auto action = action_of(handler);
  if (is_default(handler_of(signal))) sigaction(signal, &action, nullptr);
}

// Unless the program has set another since.
void stop_handling(int signal, Handler handler) {
  if (handler_of(signal) == handler) std::signal(signal, default_handler());
}

// So that a write beyond a limit of files (`ulimit -f`) is an error as on a full disk, rather than
// the end. Other than an ignored signal, what this process executes has the default again.
void on_file_limit(int) {}

std::atomic<int> code_at_exit = 0;  // of fail_at_exit()

std::mutex termination_mutex;  // guards what follows
int termination_catchers = 0;

int exit_code_of(const Error& error) {
  const bool is_preempted =
      error.code() == Code::kCancelled && stop_request() == StopRequest::kTermination;
  return is_preempted ? kExitResumable : exit_code(error.code());
}

// A standard stream that the caller has closed would be the next file or connection to be opened,
// which then got what the program prints.
void open_standard_streams() {
  for (const int stream : {0, 1, 2})
    if (::fcntl(stream, F_GETFD) < 0 && ::open("/dev/null", O_RDWR) < 0)
      fail_errno("open", "/dev/null");
}

// A pipe, as a launcher gives to its tasks, would else be written by the block, and what a task
// that is killed has printed last would be lost. What the program has chosen, or begun to use,
// stays.
void print_by_the_line_into_pipes() {
  struct stat file {};
  const bool is_pipe = ::fstat(STDOUT_FILENO, &file) == 0 && S_ISFIFO(file.st_mode);
  if (is_pipe && ::__fbufsize(stdout) == 0) std::setvbuf(stdout, nullptr, _IOLBF, 0);
}

// Errors quote what files, peers and variables of the environment say. No notice: what its sink
// refers to may have gone with the body.
void print_error(const std::exception& error) {
  std::fprintf(stderr, "error: %s\n", printable_lines(error.what()).c_str());
}

// What a program prints last is its result, which must not be lost in silence on a full disk.
void flush_output() {
  if (std::fflush(stdout) != 0) fail_errno("write", "standard output");
  if (std::ferror(stdout) != 0) fail(Code::kUnknown, "standard output was not written as a whole");
}

}  // namespace

void init() {
  open_standard_streams();
  print_by_the_line_into_pipes();
  the_request = StopRequest::kNone;
  interrupts.forget();
  const auto action = action_of(on_interrupt);
  sigaction(SIGINT, &action, nullptr);
  handle_if_default(SIGXFSZ, on_file_limit);
  handle_if_default(SIGTERM, default_handler());
  for (const int signal : kRepeatable) handle_if_default(signal, default_handler());
}

CatchTermination::CatchTermination() {
  const std::lock_guard lock(termination_mutex);
  if (termination_catchers++ > 0) return;
  terminations.forget();
  handle_if_default(SIGTERM, on_termination);
  for (const int signal : kRepeatable) handle_if_default(signal, on_repeatable);
}

CatchTermination::~CatchTermination() {
  const std::lock_guard lock(termination_mutex);
  if (--termination_catchers > 0) return;
  // What belongs to a request that has come may still be on its way; another SIGTERM has the
  // default action all the same.
  if (stop_request() != StopRequest::kTermination)
    for (const int signal : kRepeatable) stop_handling(signal, on_repeatable);
  if (!terminations.any()) stop_handling(SIGTERM, on_termination);
}

StopRequest stop_request() { return the_request; }

void request_stop(StopRequest request) {
  if (request != StopRequest::kNone) the_request = request;
}

bool interrupted() { return stop_request() != StopRequest::kNone; }

void fail_at_exit(const Error& error) {
  print_notice(str("error: ", error.what(), "\n"));
  int none = 0;
  code_at_exit.compare_exchange_strong(none, exit_code_of(error));
}

int run_main(const std::function<void()>& body) {
  code_at_exit = 0;
  try {
    init();
    body();
    flush_output();
    return code_at_exit;
  } catch (const Error& error) {
    print_error(error);
    return exit_code_of(error);
  } catch (const std::bad_alloc&) {
    std::fprintf(stderr, "error: RESOURCE_EXHAUSTED: there is no memory\n");
    return exit_code(Code::kResourceExhausted);
  } catch (const std::exception& error) {
    print_error(error);
    return 1;
  } catch (...) {
    std::fprintf(stderr, "error: what was thrown is not a std::exception\n");
    return 1;
  }
}

}  // namespace cohort
