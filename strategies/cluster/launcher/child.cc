#include "strategies/cluster/launcher/child.h"

#include <csignal>
#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "strategies/cluster/launcher/descriptor_limit.h"
#include "strategies/cluster/launcher/execution.h"
#include "strategies/cluster/launcher/pipe.h"
#include "strategies/cluster/launcher/system_error.h"

namespace cohort::launcher {
namespace {

void keep_over_exec(int descriptor) {
  fcntl(descriptor, F_SETFD, fcntl(descriptor, F_GETFD) & ~FD_CLOEXEC);
}

// In the new process: becomes the program, or writes why not to `failure`.
[[noreturn]] void become(const Program& program, int input, int output, int errors, int inherited,
                         pid_t parent, const Signals& signals, int failure) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);  // it died before the line above
  dup2(input, STDIN_FILENO);
  dup2(output, STDOUT_FILENO);
  dup2(errors, STDERR_FILENO);
  if (inherited >= 0) keep_over_exec(inherited);
  signals.restore();
  restore_descriptor_limit();
  // Where its cpuset has lost them all meanwhile, it runs on those that are left.
  if (program.cores) sched_setaffinity(0, sizeof(*program.cores), &*program.cores);
  const int error = become_program(program.path, program.arguments, program.environment);
  [[maybe_unused]] const ssize_t written = write(failure, &error, sizeof(error));
  _exit(1);
}

void do_not_block(const net::Descriptor& descriptor) {
  fcntl(descriptor.get(), F_SETFL, fcntl(descriptor.get(), F_GETFL) | O_NONBLOCK);
}

}  // namespace

Child start(const Program& program, const net::Descriptor& inherited, const Signals& signals) {
  const net::Descriptor input(open("/dev/null", O_RDONLY | O_CLOEXEC));
  if (!input) fail_system("cannot open /dev/null");
  Pipe output = make_pipe(), errors = make_pipe(), failure = make_pipe();
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid < 0) fail_system("cannot start a process");
  if (pid == 0) {
    become(program, input.get(), output.write_end.get(), errors.write_end.get(), inherited.get(),
           parent, signals, failure.write_end.get());
  }
  setpgid(pid, pid);  // here too, so that signals to the group find it whoever comes first
  failure.write_end.reset();
  int error = 0;
  if (read(failure.read_end.get(), &error, sizeof(error)) == sizeof(error)) {
    waitpid(pid, nullptr, 0);
    fail_to_run(error, program.path);
  }
  do_not_block(output.read_end);
  do_not_block(errors.read_end);
  return {pid, std::move(output.read_end), std::move(errors.read_end)};
}

}  // namespace cohort::launcher
