#include <algorithm>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <mutex>
#include <sys/mman.h>
#include <thread>
#include <unistd.h>

#include "core/collective/split.h"
#include "tests/strategies/collective/scenarios.h"
#include "tests/testing/eventually.h"

namespace cohort::testing {
namespace {

void print_error(const Communicator& c, const Error& error) {
  std::printf("rank %d: %s\n", c.rank(), error.what());
  std::fflush(stdout);
}

// What the call throws, which every later call throws again.
template <typename Work>
void print_error_of(Communicator& c, const Work& work) {
  try {
    work();
  } catch (const Error& error) {
    print_error(c, error);
    try {
      c.barrier();
    } catch (const Error& again) {
      return expect(again.message() == error.message(), "the group stays ended with its error");
    }
  }
  expect(false, "an error");
}

// Memory of which the first use stops the process.
constexpr int64_t kTrapFloats = int64_t{1} << 18;
constexpr size_t kTrapBytes = kTrapFloats * sizeof(float);
void* g_trap = nullptr;
void stop_at_trap(int /*signal*/) {
  mprotect(g_trap, kTrapBytes, PROT_READ | PROT_WRITE);
  raise(SIGSTOP);
}
void set_trap(void* memory) {
  g_trap = memory;
  expect(mprotect(memory, kTrapBytes, PROT_NONE) == 0, "memory for a trap");
  std::signal(SIGSEGV, stop_at_trap);
}
void* make_trap() {
  void* const memory =
      mmap(nullptr, kTrapBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  expect(memory != MAP_FAILED, "memory for a trap");
  set_trap(memory);
  return memory;
}

// The state of a process: 'T' for one that is stopped, 'Z' for one that has ended.
char state_of(int64_t pid) {
  std::ifstream file(str("/proc/", pid, "/stat"));
  std::string text;
  std::getline(file, text);
  const size_t name_end = text.rfind(')');
  return name_end != std::string::npos && name_end + 2 < text.size() ? text[name_end + 2] : 'Z';
}

// Ends the group as soon as the process is stopped.
std::jthread abort_when_stopped(Communicator& c, int64_t pid) {
  return std::jthread([&c, pid] {
    const bool stopped = eventually([pid] { return state_of(pid) == 'T'; });
    c.abort(Error(Code::kUnavailable,
                  stopped ? "the last rank is stopped" : "the last rank has not stopped itself"));
  });
}

}  // namespace

void expect(bool condition, const std::string& what) {
  if (!condition) fail(Code::kInternal, "expected ", what);
}

void mismatch_calls(Communicator& c) {
  float data[8] = {};
  const Segment segment{data, data, c.rank() == 1 ? 7 : 8};
  print_error_of(c, [&] { c.all_reduce({&segment, 1}, DType::kFloat32, ReduceOp::kSum); });
}

void abort_from_last_rank(Communicator& c) {
  c.barrier();
  if (c.rank() == c.size() - 1) c.abort(Error(Code::kCancelled, "enough", "the user"));
  print_error_of(c, [&] { c.barrier(); });
}

void wait_for_last_rank(Communicator& c) {
  constexpr int64_t kCount = 100'000;
  const auto memory = c.allocate(kCount * sizeof(float));
  const Segment segment{memory->data, memory->data, kCount};
  const auto reduce = [&] { c.all_reduce({&segment, 1}, DType::kFloat32, ReduceOp::kSum); };
  print_error_of(c, [&] {
    reduce();
    if (c.rank() == 0) {
      std::printf("ready\n");
      std::fflush(stdout);
    }
    while (true) reduce();
  });
}

void stop_last_rank(Communicator& c) {
  const std::vector<int64_t> pids = tell_all(c, "the pids of a test", int64_t{getpid()});
  std::vector<float> data(kTrapFloats, 1);
  const bool is_last = c.rank() == c.size() - 1;
  const Segment segment{data.data(), is_last ? make_trap() : data.data(), kTrapFloats};
  std::jthread ending;
  if (c.rank() == 0) ending = abort_when_stopped(c, pids.back());
  print_error_of(c, [&] { c.all_reduce({&segment, 1}, DType::kFloat32, ReduceOp::kSum); });
}

void stop_last_rank_for_a_while(Communicator& c) {
  const std::vector<int64_t> pids = tell_all(c, "the pids of a test", int64_t{getpid()});
  const auto memory = c.allocate(kTrapBytes);
  auto* const data = static_cast<float*>(memory->data);
  std::fill_n(data, kTrapFloats, 1.0F);
  if (c.rank() == c.size() - 1) set_trap(data);
  const Segment segment{data, data, kTrapFloats};
  std::jthread ending;
  if (c.rank() == 0) ending = abort_when_stopped(c, pids.back());
  print_error_of(c, [&] { c.all_reduce({&segment, 1}, DType::kFloat32, ReduceOp::kSum); });
  if (c.rank() != 0) return;
  std::fill_n(data, kTrapFloats, 2.0F);
  kill(static_cast<pid_t>(pids.back()), SIGCONT);
  expect(eventually([&] { return state_of(pids.back()) == 'Z'; }), "an end of the last rank");
  expect(std::count(data, data + kTrapFloats, 2.0F) == kTrapFloats, "what was written last");
}

void fail_beside_another_group(Communicator& c) {
  const std::vector<int64_t> pids = tell_all(c, "the pids of a test", int64_t{getpid()});
  const auto failing = c.split(c.rank() == 1 ? -1 : 0), other = c.split(c.rank() == 2 ? -1 : 0);
  constexpr int64_t kOther = (int64_t{1} << 14) + 512;
  const auto memory = c.allocate((kOther + kTrapFloats) * sizeof(float));
  auto* const data = static_cast<float*>(memory->data);
  std::fill_n(data, kOther + kTrapFloats, 1.0F);
  const Segment first{data, data, kOther}, second{data + kOther, data + kOther, kTrapFloats};
  const auto sum = [](Communicator& group, const Segment& segment) {
    group.all_reduce({&segment, 1}, DType::kFloat32, ReduceOp::kSum);
  };
  c.barrier();
  if (c.rank() == 2) {
    set_trap(data);
    return print_error_of(*failing, [&] { sum(*failing, second); });
  }
  if (c.rank() == 1) {
    // Not before the first rank's other call has failed, which it says by a message.
    char failed = 0;
    c.receive(&failed, 1, 0);
    return sum(*other, first);
  }
  const int64_t id = other->start_all_reduce({&first, 1}, DType::kFloat32, ReduceOp::kSum);
  {
    const std::jthread ending = abort_when_stopped(*failing, pids.back());
    print_error_of(*failing, [&] { sum(*failing, second); });
  }
  const char failed = 1;
  c.send(&failed, 1, 1);
  other->wait(id);
  kill(static_cast<pid_t>(pids.back()), SIGCONT);
  expect(std::count(data, data + kOther, 2.0F) == kOther, "the sums of the group that goes on");
}

void stop_last_rank_of_part(Communicator& c) {
  const std::vector<int64_t> pids = tell_all(c, "the pids of a test", int64_t{getpid()});
  const auto part = c.split(0);
  c.barrier();
  if (c.rank() == c.size() - 1) {
    raise(SIGSTOP);
    return;
  }
  const std::jthread ending = abort_when_stopped(c, pids.back());
  print_error_of(*part, [&] { part->barrier(); });
}

const std::map<std::string, Scenario>& scenarios() {
  static const std::map<std::string, Scenario> all{
      {"calls", make_all_calls},
      {"messages", exchange_messages},
      {"split", split_groups},
      {"background", run_in_background},
      {"replace", replace_memory},
      {"mismatch", mismatch_calls},
      {"abort", abort_from_last_rank},
      {"wait", wait_for_last_rank},
      {"stop", stop_last_rank},
      {"stop for a while", stop_last_rank_for_a_while},
      {"stop in part", stop_last_rank_of_part},
      {"stop beside", fail_beside_another_group},
  };
  return all;
}

}  // namespace cohort::testing
