#include <cstdio>
#include <mutex>

#include "tests/strategies/collective/scenarios.h"

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

const std::map<std::string, Scenario>& scenarios() {
  static const std::map<std::string, Scenario> all{
      {"calls", make_all_calls},       {"messages", exchange_messages},
      {"split", split_groups},         {"background", run_in_background},
      {"replace", replace_memory},     {"mismatch", mismatch_calls},
      {"abort", abort_from_last_rank}, {"wait", wait_for_last_rank},
  };
  return all;
}

}  // namespace cohort::testing
