#include "core/runtime/device_times.h"

#include <gtest/gtest.h>

#include "core/graph/graph_function.h"
#include "core/graph/op.h"
#include "core/ops/collective_ops.h"
#include "core/ops/math_ops.h"

// What a device says of its streams, as rows of a trace.
namespace cohort {
namespace {

using std::chrono::microseconds;
using std::chrono::nanoseconds;
using Clock = Profiler::Clock;

constexpr int kReplica = 3;

class ClockMark final : public StreamMark {
 public:
  explicit ClockMark(const nanoseconds& now) : now_(now) {}
  void put() override { time_ = now_; }
  nanoseconds since(const StreamMark& earlier) const override {
    return time_ - static_cast<const ClockMark&>(earlier).time_;
  }

 private:
  const nanoseconds& now_;
  nanoseconds time_{0};
};

// Does nothing, at the time that the test says.
class ClockStream final : public TimedStream {
 public:
  Device device() const override { return {DeviceType::kGpu, 1}; }
  void copy_from_host(const void*, void*, size_t) override {}
  void copy_to_host(const void*, void*, size_t) override {}
  void copy_within_device(const void*, void*, size_t) override {}
  void synchronize() override { ++waits; }
  void begin_recording() override {}
  std::unique_ptr<Recording> end_recording() override { return nullptr; }
  void replay(Recording&) override {}
  void* native() override { return nullptr; }
  std::unique_ptr<StreamMark> make_mark() override { return std::make_unique<ClockMark>(now); }

  nanoseconds now{0};
  int waits = 0;
};

class DeviceTimesTest : public testing::Test {
 protected:
  DeviceTimesTest() {
    const GraphScope scope(*function_.graph);
    const Value x = function_.graph->add_input("x", {DType::kFloat32, {5}});
    function_.outputs = ops::all_reduce_async({x * x, x + x}, ReduceOp::kSum);
    computation_.now = microseconds(100);
  }

  const Node& node(const std::string& op) const {
    for (const auto& node : function_.graph->nodes())
      if (node->op().name == op) return *node;
    throw Error(Code::kInternal, "there is no " + op);
  }
  // A kernel of the device, by its clock.
  void run(DeviceTimes& times, const Node& node, int begin, int end) {
    computation_.now = microseconds(begin);
    times.start(node);
    computation_.now = microseconds(end);
    times.stop();
  }
  // An all-reduce for which `communication_` is free at `free`.
  void reduce(DeviceTimes& times, int begin, int free, int end) {
    computation_.now = microseconds(begin);
    communication_.now = microseconds(free);
    times.start(node("AllReduceStart"));
    communication_.now = microseconds(end);
    times.stop();
  }

  GraphFunction function_;
  ClockStream computation_, communication_;
};

void expect_event(const Profiler::Event& event, Clock::time_point zero, const std::string& kind,
                  const std::string& row, int begin, int end) {
  EXPECT_EQ(event.kind, kind);
  EXPECT_EQ(event.row, row);
  EXPECT_EQ(event.replica, kReplica);
  EXPECT_EQ(event.begin - zero, microseconds(begin)) << kind;
  EXPECT_EQ(event.end - zero, microseconds(end)) << kind;
}

TEST_F(DeviceTimesTest, AreTheDevicesOwnInTheHostsClock) {
  const auto before = Clock::now();
  DeviceTimes times(computation_, nullptr);
  const auto after = Clock::now();
  run(times, node("Mul"), 110, 130);
  run(times, node("AllReduceStart"), 130, 131);
  Profiler profiler;
  times.tell(kReplica);
  const auto events = profiler.events();
  ASSERT_EQ(events.size(), 2u) << "nothing goes on elsewhere";
  const auto zero = events[0].begin - microseconds(10);
  EXPECT_LE(before, zero);
  EXPECT_LE(zero, after);
  EXPECT_EQ(events[0].name, node("Mul").name());
  expect_event(events[0], zero, "Mul", "gpu:1 computation", 10, 30);
  expect_event(events[1], zero, "AllReduceStart", "gpu:1 computation", 30, 31);
}

TEST_F(DeviceTimesTest, WaitForTheStreams) {
  DeviceTimes times(computation_, &communication_);
  EXPECT_GT(computation_.waits, 0) << "what was handed over before is none of the step's";
  EXPECT_EQ(communication_.waits, 0);
  Profiler profiler;
  times.tell(kReplica);
  EXPECT_EQ(communication_.waits, 1);
  EXPECT_TRUE(profiler.events().empty());
}

TEST_F(DeviceTimesTest, ShowReductionsFromWhenBothStreamsCameToThem) {
  DeviceTimes times(computation_, &communication_);
  reduce(times, 130, 105, 190);
  reduce(times, 190, 195, 260);
  Profiler profiler;
  times.tell(kReplica);
  const auto events = profiler.events();
  ASSERT_EQ(events.size(), 4u);
  const auto zero = events[0].begin - microseconds(30);
  expect_event(events[1], zero, "communication", "gpu:1 communication", 30, 90);
  EXPECT_EQ(events[1].name, "AllReduce of 40 bytes");
  expect_event(events[3], zero, "communication", "gpu:1 communication", 95, 160);
}

TEST_F(DeviceTimesTest, ShowNoReductionThatWasNotStarted) {
  DeviceTimes times(computation_, &communication_);
  reduce(times, 130, 120, 121);
  Profiler profiler;
  times.tell(kReplica);
  ASSERT_EQ(profiler.events().size(), 1u);
  EXPECT_EQ(profiler.events()[0].kind, "AllReduceStart");
}

}  // namespace
}  // namespace cohort
