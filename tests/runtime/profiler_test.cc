#include "core/runtime/profiler.h"

#include <atomic>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string_view>
#include <unistd.h>
#include <utility>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "core/base/cancellation.h"
#include "core/base/error.h"
#include "core/base/file.h"
#include "core/base/notice.h"
#include "core/collective/forwarding_communicator.h"
#include "core/ops/collective_ops.h"
#include "core/ops/math_ops.h"
#include "core/ops/nn_ops.h"
#include "core/runtime/function.h"

namespace cohort {
namespace {

using std::chrono::microseconds;
using Json = nlohmann::json;

class ProfilerTest : public testing::Test {
 protected:
  ~ProfilerTest() override { std::filesystem::remove(path_); }

  Json trace_of(const Profiler& profiler) const {
    profiler.write(path_);
    return Json::parse(read_file(path_)).at("traceEvents");
  }

  const std::string path_ = testing::TempDir() + "/profiler_test_trace.json";
};

// Records a kernel that began `begin` after `start` and took `time`.
void record(const std::string& name, const std::string& kind, int replica,
            Profiler::Clock::time_point start, microseconds begin, microseconds time) {
  Profiler::record(name, kind, replica, start + begin, start + begin + time);
}

TEST_F(ProfilerTest, WritesEveryKernelOfAPlanInTheOrderAndTimeInWhichItRan) {
  constexpr int kReplicas = 2, kSteps = 3;
  constexpr double kRounding = 1e-3;  // of microseconds in a double
  const auto step = function(
      [](Value x) { return ops::softmax(ops::matmul(ops::softmax(ops::matmul(x, x)), x)); });
  const std::vector<Tensor> inputs = {Tensor::full(DType::kFloat32, {32, 32}, 0.01)};
  step(inputs);  // compiles it
  const auto before = Profiler::Clock::now();
  const Profiler profiler;
  for (int i = 0; i < kSteps; ++i)
    for (int replica = 0; replica < kReplicas; ++replica)
      step.run(inputs, {}, {.step = i, .replica_id = replica, .num_replicas = kReplicas});
  const double elapsed =
      std::chrono::duration<double, std::micro>(Profiler::Clock::now() - before).count();

  std::map<std::pair<int, int>, std::string> rows;
  std::vector<std::string> processes, kernels;
  std::optional<double> first_begin;
  double last_end = 0;
  for (const Json& event : trace_of(profiler)) {
    if (event.at("name") == "process_name") {
      processes.push_back(event.at("args").at("name").get<std::string>());
      continue;
    }
    const std::pair row(event.at("pid").get<int>(), event.at("tid").get<int>());
    if (event.at("ph") == "M") {
      EXPECT_EQ(event.at("name"), "thread_name");
      EXPECT_TRUE(rows.emplace(row, event.at("args").at("name").get<std::string>()).second)
          << event;
      continue;
    }
    EXPECT_EQ(event.at("ph"), "X") << event;
    EXPECT_EQ(rows.at(row), event.at("cat")) << event;
    kernels.push_back(str(row.first, event.at("cat").get<std::string>()));
    EXPECT_GE(event.at("ts").get<double>(), last_end - kRounding) << event;
    EXPECT_GT(event.at("dur").get<double>(), 0) << event;
    if (!first_begin) first_begin = event.at("ts").get<double>();
    last_end = event.at("ts").get<double>() + event.at("dur").get<double>();
  }
  ASSERT_TRUE(first_begin);
  EXPECT_LE(last_end - *first_begin, elapsed);
  ASSERT_EQ(processes.size(), 2u);
  for (size_t replica = 0; replica < processes.size(); ++replica)
    EXPECT_TRUE(
        processes[replica].starts_with(str("replica ", replica, ", process ", getpid(), " on ")))
        << processes[replica];
  EXPECT_EQ(rows.size(), 4u) << "one for each kernel name of each replica";
  std::vector<std::string> expected;
  for (int i = 0; i < kSteps; ++i)
    for (int replica = 0; replica < kReplicas; ++replica)
      for (const char* kind : {"MatMul", "Softmax", "MatMul", "Softmax"})
        expected.push_back(str(replica, kind));
  EXPECT_EQ(kernels, expected);
}

TEST_F(ProfilerTest, WritesTimesOfTheHostsClockInMicroseconds) {
  constexpr double kRounding = 1;  // of microseconds since 1970 in a double
  const auto now = [] {
    const auto time = std::chrono::system_clock::now().time_since_epoch();
    return std::chrono::duration<double, std::micro>(time).count();
  };
  const double before = now();
  const Profiler profiler;
  record("dense/MatMul", "MatMul", 3, Profiler::Clock::now(), microseconds(1500),
         microseconds(250));
  const double after = now();
  const Json event = trace_of(profiler).at(2);
  EXPECT_EQ(event.at("name"), "dense/MatMul");
  EXPECT_EQ(event.at("pid"), 3);
  EXPECT_NEAR(event.at("dur").get<double>(), 250, 1e-3);
  const auto base = Json::parse(read_file(path_)).at("baseTimeNanoseconds").get<int64_t>();
  EXPECT_EQ(base % 1'000'000'000'000'000, 0) << "the same in the files of other workers";
  const double begin = static_cast<double>(base) / 1e3 + event.at("ts").get<double>();
  EXPECT_GE(begin, before + 1500 - kRounding);
  EXPECT_LE(begin, after + 1500 + kRounding);
}

TEST_F(ProfilerTest, LeavesOutWhatIsBeyondItsLimitAndSaysSoOnce) {
  std::string said;
  set_notice_sink([&](std::string_view lines) { said += lines; });
  const Profiler profiler(3);
  for (int i = 0; i < 5; ++i) record("a", "Add", 0, Profiler::Clock::now(), {}, {});
  set_notice_sink({});
  EXPECT_EQ(profiler.events().size(), 3u);
  EXPECT_EQ(said, "warning: the profiler has 3 events, and leaves out what follows\n");
}

TEST_F(ProfilerTest, WritesEventsIntoTheRowsTheyAreGiven) {
  Profiler profiler;
  const auto start = Profiler::Clock::now();
  Profiler::record("a", "MatMul", 0, start, start, "gpu:0 computation");
  Profiler::record("b", "Add", 0, start, start, "gpu:0 computation");
  Profiler::record("c", "Add", 0, start, start);
  std::map<int, std::string> rows;
  std::vector<std::string> events;
  for (const Json& event : trace_of(profiler)) {
    if (event.at("name") == "process_name") continue;
    const int row = event.at("tid").get<int>();
    if (event.at("ph") == "M")
      rows[row] = event.at("args").at("name").get<std::string>();
    else
      events.push_back(str(event.at("cat").get<std::string>(), " in ", rows.at(row)));
  }
  EXPECT_EQ(events, (std::vector<std::string>{"MatMul in gpu:0 computation",
                                              "Add in gpu:0 computation", "Add in Add"}));
}

TEST_F(ProfilerTest, WritesNamesThatNeedEscapesOrAreNoText) {
  Profiler profiler;
  const auto start = Profiler::Clock::now();
  record("a \"b\"\n", "Add", 0, start, {}, {});
  record("\xff", "Add", 0, start, {}, {});
  const Json trace = trace_of(profiler);
  EXPECT_EQ(trace.at(2).at("name"), "a \"b\"\n");
  EXPECT_EQ(trace.at(3).at("name"), "\uFFFD");
}

TEST_F(ProfilerTest, WithoutEventsWritesAnEmptyTrace) {
  const Profiler profiler;
  EXPECT_EQ(trace_of(profiler), Json::array());
  EXPECT_EQ(profiler.summary(), "");
}

TEST_F(ProfilerTest, NamesAFileThatCannotBeWritten) {
  const Profiler profiler;
  try {
    profiler.write("/nowhere/trace.json");
    FAIL() << "wrote into a folder that does not exist";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kNotFound);
    EXPECT_NE(error.message().find("/nowhere/trace.json"), std::string::npos) << error.message();
  }
}

TEST_F(ProfilerTest, SumsUpTimeAndCallsOfEachOpTheLongestFirst) {
  Profiler profiler;
  const auto start = Profiler::Clock::now();
  record("a", "Add", 0, start, microseconds(0), microseconds(100));
  record("b", "MatMul", 0, start, microseconds(100), microseconds(400));
  record("c", "MatMul", 1, start, microseconds(100), microseconds(300));
  EXPECT_EQ(profiler.summary(),
            "MatMul                                  2 calls        700.0 us  87.5 %\n"
            "Add                                     1 calls        100.0 us  12.5 %\n");
}

// It goes on beside the kernels, of which one waits for it.
TEST_F(ProfilerTest, CountsCommunicationOnceInItsShares) {
  Profiler profiler;
  const auto start = Profiler::Clock::now();
  record("a", "MatMul", 0, start, microseconds(0), microseconds(600));
  record("AllReduce of 8 bytes", Profiler::kCommunication, 0, start, microseconds(100),
         microseconds(800));
  record("b", "AllReduceWait", 0, start, microseconds(600), microseconds(400));
  EXPECT_EQ(profiler.summary(),
            "communication                           1 calls        800.0 us beside kernels\n"
            "MatMul                                  1 calls        600.0 us  60.0 %\n"
            "AllReduceWait                           1 calls        400.0 us  40.0 %\n");
}

TEST_F(ProfilerTest, IsAloneAndActiveWhileItLives) {
  EXPECT_FALSE(Profiler::is_active());
  {
    const Profiler profiler;
    EXPECT_TRUE(Profiler::is_active());
    try {
      const Profiler second;
      FAIL() << "two profilers are active";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::kFailedPrecondition);
    }
    EXPECT_TRUE(Profiler::is_active());
  }
  EXPECT_FALSE(Profiler::is_active());
}

// Of one rank, with something to do before each collective.
class InterruptedCommunicator final : public ForwardingCommunicator {
 public:
  explicit InterruptedCommunicator(std::function<void()> interruption)
      : ForwardingCommunicator(std::move(make_in_process_communicators(1).front())),
        interruption_(std::move(interruption)) {}
  void run(const Call& call) override {
    interruption_();
    ForwardingCommunicator::run(call);
  }

 private:
  const std::function<void()> interruption_;
};

TEST_F(ProfilerTest, MayEndWhileAPlanRuns) {
  const auto step = function([](Value x) { return ops::tanh(ops::all_reduce({ops::tanh(x)})[0]); });
  const std::vector<Tensor> inputs = {Tensor::full(DType::kFloat32, {4}, 0.5)};
  auto profiler = std::make_unique<Profiler>();
  std::vector<Profiler::Event> events;
  InterruptedCommunicator communicator([&] {
    events = profiler->events();
    profiler.reset();
  });
  step.run(inputs, {}, {.communicator = &communicator});
  EXPECT_EQ(events.size(), 1u);
  EXPECT_FALSE(Profiler::is_active());
}

TEST_F(ProfilerTest, LetsAPlanBeCancelledBetweenKernels) {
  const auto step = function([](Value x) { return ops::tanh(ops::all_reduce({ops::tanh(x)})[0]); });
  const std::vector<Tensor> inputs = {Tensor::full(DType::kFloat32, {4}, 0.5)};
  const Profiler profiler;
  std::atomic<bool> cancelled = false;
  InterruptedCommunicator communicator([&] { cancelled = true; });
  const CancelScope scope(cancelled);
  try {
    step.run(inputs, {}, {.communicator = &communicator});
    FAIL() << "a plan that was cancelled came to its end";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kCancelled) << error.what();
  }
  EXPECT_EQ(profiler.events().size(), 2u) << "the kernels up to the one that was under way";
}

}  // namespace
}  // namespace cohort
