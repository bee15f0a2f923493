#include "core/base/program.h"

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <new>
#include <optional>
#include <sched.h>
#include <stdexcept>
#include <string>
#include <string_view>
#include <sys/wait.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include "core/base/error.h"
#include "core/base/notice.h"

namespace cohort {
namespace {

// A program of this body: its exit code, and what it says.
struct Ended {
  int code = 0;
  std::string said;
};
Ended run(const std::function<void()>& body) {
  ::testing::internal::CaptureStderr();
  const int code = run_main(body);
  return {code, ::testing::internal::GetCapturedStderr()};
}

TEST(RunMain, GivesEachExceptionItsExitCodeAndALine) {
  const Ended well = run([] {}), error = run([] { invalid("no such flag"); }),
              memory = run([] { throw std::bad_alloc(); }),
              other = run([] { throw std::runtime_error("no ink"); }), none = run([] { throw 3; });
  EXPECT_EQ(well.code, 0);
  EXPECT_EQ(well.said, "");
  EXPECT_EQ(error.code, exit_code(Code::kInvalidArgument));
  EXPECT_EQ(error.said, "error: INVALID_ARGUMENT: no such flag\n");
  EXPECT_EQ(memory.code, exit_code(Code::kResourceExhausted));
  EXPECT_EQ(memory.said, "error: RESOURCE_EXHAUSTED: there is no memory\n");
  EXPECT_EQ(other.code, 1);
  EXPECT_EQ(other.said, "error: no ink\n");
  EXPECT_EQ(none.code, 1);
  EXPECT_EQ(none.said, "error: what was thrown is not a std::exception\n");
}

TEST(RunMain, GivesTheExitCodeOfAnErrorThatCouldNotBeThrownWhereTheBodyEndsWell) {
  const Error first(Code::kUnavailable, "worker:1 is gone", "worker:1"),
      second(Code::kAborted, "so is the rest");
  const Ended well = run([&] {
    fail_at_exit(first);
    fail_at_exit(second);
  });
  EXPECT_EQ(well.code, exit_code(Code::kUnavailable));
  EXPECT_EQ(well.said,
            "error: UNAVAILABLE: worker:1 is gone (peer worker:1)\n"
            "error: ABORTED: so is the rest\n");
  const Ended thrown = run([&] {
    fail_at_exit(first);
    invalid("no such flag");
  });
  EXPECT_EQ(thrown.code, exit_code(Code::kInvalidArgument));
  EXPECT_EQ(run([] {}).code, 0) << "it was of the run before";
}

// Such as the name of a tensor in somebody's file.
TEST(RunMain, PrintsNothingOfAnErrorThatATerminalWouldObey) {
  EXPECT_EQ(run([] { invalid("a\x1b]0;title\x07 of\nb\x9b"); }).said,
            "error: INVALID_ARGUMENT: a?]0;title? of\nb?\n");
  EXPECT_EQ(run([] { throw std::runtime_error("\r\x1b[2K"); }).said, "error: ??[2K\n");
  EXPECT_EQ(run([] { fail_at_exit(Error(Code::kUnavailable, "a\x1b[2K\r is gone")); }).said,
            "error: UNAVAILABLE: a?[2K? is gone\n");
}

// What is thrown passes the program, which may have let go of what its sink uses.
TEST(RunMain, GivesTheSinkOfNoticesOnlyWhatCouldNotBeThrown) {
  std::string noticed;
  set_notice_sink([&](std::string_view lines) { noticed += lines; });
  const Ended ended = run([] {
    fail_at_exit(Error(Code::kUnavailable, "worker:1 is gone"));
    invalid("no such flag");
  });
  set_notice_sink({});
  EXPECT_EQ(noticed, "error: UNAVAILABLE: worker:1 is gone\n");
  EXPECT_EQ(ended.said, "error: INVALID_ARGUMENT: no such flag\n");
}

// What a process prints to a pipe, by a standard output that is as new, and is killed then.
std::string printed_before_kill(const std::function<void()>& print) {
  int ends[2];
  if (::pipe(ends) != 0) return "no pipe";
  const pid_t child = ::fork();
  if (child == 0) {
    ::dup2(ends[1], STDOUT_FILENO);
    stdout = ::fdopen(STDOUT_FILENO, "w");
    print();
    raise(SIGKILL);
  }
  ::close(ends[1]);
  std::string printed;
  char part[256];
  for (ssize_t count; (count = ::read(ends[0], part, sizeof(part))) > 0;)
    printed.append(part, static_cast<size_t>(count));
  ::close(ends[0]);
  ::waitpid(child, nullptr, 0);
  return printed;
}

TEST(Init, HasLinesWrittenIntoAPipeAsTheyEnd) {
  EXPECT_EQ(printed_before_kill([] {
              init();
              std::printf("first %d\nsecond\nwithout", 1);
            }),
            "first 1\nsecond\n");
}

TEST(Init, LeavesABufferThatTheProgramHasChosen) {
  EXPECT_EQ(printed_before_kill([] {
              static char buffer[1024];
              std::setvbuf(stdout, buffer, _IOFBF, sizeof(buffer));
              init();
              std::printf("first\nsecond\n");
            }),
            "");
}

int exit_code_of(pid_t child) {
  int status = 0;
  if (::waitpid(child, &status, 0) != child) return -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

// The exit code of `body` as the first process of a container, which ends with 0 when it returns;
// nothing where the system has none for us.
std::optional<int> code_of_first_process(const std::function<void()>& body) {
  constexpr int kNone = 99;
  const pid_t child = ::fork();
  if (child == 0) {
    if (::unshare(CLONE_NEWUSER | CLONE_NEWPID) != 0) ::_exit(kNone);
    const pid_t first = ::fork();
    if (first < 0) ::_exit(kNone);
    if (first > 0) ::_exit(exit_code_of(first));
    body();
    ::_exit(0);
  }
  const int code = exit_code_of(child);
  return code == kNone ? std::nullopt : std::optional<int>(code);
}

TEST(FirstProcessOfAContainer, IsEndedByWhatEndsOthers) {
  if (!code_of_first_process([] {})) GTEST_SKIP() << "no container for this test";
  for (const int signal : {SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGXCPU}) {
    const auto raise_it = [signal] {
      init();
      raise(signal);
    };
    const auto raise_it_after_training = [signal] {
      init();
      { const CatchTermination fit; }
      raise(signal);
    };
    const auto raise_it_while_training = [signal] {
      init();
      const CatchTermination fit;
      raise(signal);
      ::_exit(stop_request() == StopRequest::kTermination ? kExitResumable : 1);
    };
    EXPECT_EQ(code_of_first_process(raise_it), 128 + signal);
    EXPECT_EQ(code_of_first_process(raise_it_after_training), 128 + signal);
    EXPECT_EQ(code_of_first_process(raise_it_while_training), kExitResumable);
  }
}

TEST(FirstProcessOfAContainer, IsEndedAtOnceByASignalThatGoesOnComing) {
  if (!code_of_first_process([] {})) GTEST_SKIP() << "no container for this test";
  for (const int signal : {SIGTERM, SIGINT}) {
    const auto raise_again_and_again = [signal] {
      using Clock = std::chrono::steady_clock;
      init();
      const CatchTermination fit;
      for (const auto end = Clock::now() + 10 * kSameRequest; Clock::now() < end;) raise(signal);
    };
    EXPECT_EQ(code_of_first_process(raise_again_and_again), 128 + signal);
  }
}

}  // namespace
}  // namespace cohort
