#pragma once

#include <chrono>
#include <functional>

#include "core/base/error.h"

namespace cohort {

// What has asked the process to stop: a person (SIGINT, Ctrl-C), or the end of what it runs on, a
// machine that a scheduler takes away (SIGTERM, or SIGUSR1 or SIGUSR2 as its warning), time of the
// processor that is used up (SIGXCPU) or a terminal that closes (SIGHUP).
enum class StopRequest { kNone, kInterrupt, kTermination };

// One request may arrive as several signals: `timeout` sends to the program and to its group, and
// where a scheduler sends to every process of a job, cohort-run passes on what it gets itself.
// Those that follow the first within this time belong to it.
inline constexpr std::chrono::seconds kSameRequest(1);

// Prepares the process: from now on an interrupt (SIGINT) asks whatever trains to stop after its
// present step, of which a terminal is told; another one, later than kSameRequest, ends the process
// at once, as without init(). Standard streams that the caller has closed become /dev/null, so that
// no file takes their place: where that cannot be had, an Error of the system's. Where standard
// output is a pipe and nothing is printed yet, each line is written when it ends (_IOLBF), so that
// a launcher has what was printed before a task is killed. A file that may grow no further (`ulimit
// -f`) is an error of whoever writes, as a full disk is, and ends nothing by SIGXFSZ, unless the
// program handles that itself. In a container, whose first process the kernel spares each signal
// without a handler, what would end another process ends this one too, with exit code 128 + its
// number.
void init();

// While one is alive, SIGTERM is such a request too, and likewise another one ends the process.
// SIGHUP, SIGUSR1 and SIGUSR2, by which many a job has Slurm, LSF or Grid Engine warn it, and
// SIGXCPU are one however often they come. Each of the five is left alone where the program handles
// it, or it is ignored, as by nohup; a handler that the program sets meanwhile stays. For code that
// looks at stop_request() again and again, as fit() does. At all other times each of them ends the
// process, unless it follows a request for termination: then a SIGTERM that belongs to that, and
// every one of the others, changes nothing. Thread-safe.
class CatchTermination {
 public:
  CatchTermination();
  ~CatchTermination();
  CatchTermination(const CatchTermination&) = delete;
  CatchTermination& operator=(const CatchTermination&) = delete;
};

// What has asked for a stop since init(), the latest; thread-safe.
StopRequest stop_request();
// As if the signal had arrived: another process of the job has had it, or the program handles it
// itself, whose handler may call this. kNone changes nothing.
void request_stop(StopRequest request);
// Whether there is any.
bool interrupted();

// The exit code of a program that a request for termination has stopped: it has ended in good
// order, and is to be started again, to continue from what it has saved, if there was something to
// save.
inline constexpr int kExitResumable = 42;

// The body of main(): calls init() and `body`, and returns the exit code of the process. A
// cohort::Error is printed as one line on stderr, fit for a terminal (printable_lines()), and gives
// exit_code(error.code()) (so does standard output that cannot be written), or kExitResumable for
// kCancelled after such a request; std::bad_alloc is kResourceExhausted, and any other exception
// gives 1.
int run_main(const std::function<void()>& body);

// For an error where nothing can be thrown, as in a destructor: prints the line of run_main() as a
// notice (print_notice()), since the program hears of it in no other way, and has run_main() give
// its exit code where `body` ends well all the same. Of several the first counts. Thread-safe.
void fail_at_exit(const Error& error);

}  // namespace cohort
