#include <cmath>

#include <gtest/gtest.h>

#include "core/collective/device_collectives.h"
#include "core/collective/forwarding_communicator.h"
#include "core/device/simulated/simulated_gpus.h"
#include "core/ops/collective_ops.h"
#include "core/ops/math_ops.h"
#include "core/runtime/plan.h"
#include "core/runtime/profiler.h"

// All-reduces of a step where the communicator has collectives on the device, and where it has
// none.
namespace cohort {
namespace {

constexpr Device kGpu{DeviceType::kGpu, 0};
constexpr int64_t kElements = 1 << 16;
constexpr size_t kBytes = kElements * sizeof(float);

// Sums of two ranks that have the same values, on the caller's stream or one of their own. They may
// have memory for them.
class Doubling final : public DeviceCollectives {
 public:
  explicit Doubling(std::unique_ptr<Stream> own = nullptr) : own_(std::move(own)) {}

  bool can_run(const Call&) const override { return true; }
  std::shared_ptr<Buffer> allocate(size_t bytes) override {
    return has_memory ? device_backend(kGpu.type).allocate(kGpu, bytes, "buckets") : nullptr;
  }
  void start(const Call& call, Stream& stream, const void* token) override {
    if (own_ != nullptr) stream.synchronize();
    for (const Segment& s : std::get<AllReduceCall>(call).segments) {
      reduced = s.target;
      simulated::submit(own_ != nullptr ? *own_ : stream, [s] {
        for (int64_t i = 0; i < s.count; ++i)
          static_cast<float*>(s.target)[i] = 2 * static_cast<const float*>(s.source)[i];
      });
    }
    started = token;
  }
  void wait(const void* token, Stream&) override {
    waited = token;
    if (own_ != nullptr) own_->synchronize();
  }
  Stream* stream() override { return own_.get(); }
  void check() override { ++checks; }
  void abort(const Error&) override {}

  bool has_memory = false;
  const void *started = nullptr, *waited = nullptr, *reduced = nullptr;
  int checks = 0;

 private:
  const std::unique_ptr<Stream> own_;
};

class WithDoubling final : public ForwardingCommunicator {
 public:
  explicit WithDoubling(std::unique_ptr<Stream> own = nullptr)
      : ForwardingCommunicator(std::move(make_in_process_communicators(2)[0])),
        doubling(std::move(own)) {}
  DeviceCollectives* on_device() override { return &doubling; }

  Doubling doubling;
};

// The sum of kElements reduced values, of a feed of one.
GraphFunction trace() {
  GraphFunction f;
  const GraphScope scope(*f.graph);
  const Value x = f.graph->add_input("x", {DType::kFloat32, {1}});
  const Value many = x * ops::constant(Tensor::full(DType::kFloat32, {kElements}, 0.5));
  f.outputs = {ops::reduce_sum(ops::all_reduce_async({many}, ReduceOp::kSum)[0])};
  return f;
}

TEST(DeviceReduction, TakesStagingMemoryOnlyForTheHost) {
  simulated::use_simulated_gpus(1);
  const std::vector<Tensor> feeds = {Tensor::from<float>({3}, {1})};
  const double sum = 1.5 * kElements;
  const size_t before = simulated::staging_bytes();
  Plan plan(trace(), {.device = kGpu});
  WithDoubling two;
  for (int run = 1; run <= 2; ++run) {
    EXPECT_NEAR(plan.run(feeds, {.communicator = &two})[0].item(), 2 * sum, 1e-3 * sum);
    EXPECT_EQ(two.doubling.checks, run);
  }
  EXPECT_NE(two.doubling.started, nullptr);
  EXPECT_EQ(two.doubling.waited, two.doubling.started) << "by the same name";
  EXPECT_LT(simulated::staging_bytes() - before, kBytes) << "nothing goes through the host";
  for (int run = 1; run <= 2; ++run) {
    EXPECT_NEAR(plan.run(feeds, {})[0].item(), sum, 1e-3 * sum);
    const size_t staged = simulated::staging_bytes() - before;
    EXPECT_GE(staged, kBytes);
    EXPECT_LT(staged, 2 * kBytes) << "run " << run << ": it is taken once";
  }
}

TEST(DeviceReduction, WorksInMemoryOfTheCollectives) {
  simulated::use_simulated_gpus(1);
  auto two = std::make_unique<WithDoubling>();
  two->doubling.has_memory = true;
  std::shared_ptr<Buffer> buckets;
  const auto allocate = [&](size_t bytes) { return buckets = two->doubling.allocate(bytes); };
  Plan plan(trace(), {.device = kGpu, .bucket_memory = allocate});
  EXPECT_EQ(plan.stats().bucket_bytes, kBytes);
  const std::vector<Tensor> feeds = {Tensor::from<float>({3}, {1})};
  const double sum = 1.5 * kElements;
  for (int run = 1; run <= 2; ++run) {
    EXPECT_NEAR(plan.run(feeds, {.communicator = two.get()})[0].item(), 2 * sum, 1e-3 * sum);
    EXPECT_EQ(two->doubling.reduced, buckets->data);
  }
  two.reset();
  buckets.reset();
  EXPECT_NEAR(plan.run(feeds, {})[0].item(), sum, 1e-3 * sum) << "the memory stays";
}

TEST(DeviceReduction, WorksInTheArenaWhereTheCollectivesHaveNoMemory) {
  simulated::use_simulated_gpus(1);
  WithDoubling two;
  const auto allocate = [&](size_t bytes) { return two.doubling.allocate(bytes); };
  Plan plan(trace(), {.device = kGpu, .bucket_memory = allocate});
  EXPECT_EQ(plan.stats().bucket_bytes, 0u);
  EXPECT_GE(plan.stats().arena_bytes, kBytes);
  const double sum = 1.5 * kElements;
  EXPECT_NEAR(
      plan.run(std::vector<Tensor>{Tensor::from<float>({3}, {1})}, {.communicator = &two})[0]
          .item(),
      2 * sum, 1e-3 * sum);
}

TEST(DeviceReduction, MemoryBeyondTheLimitIsNamed) {
  simulated::use_simulated_gpus(1, kBytes / 2);
  WithDoubling two;
  two.doubling.has_memory = true;
  const auto allocate = [&](size_t bytes) { return two.doubling.allocate(bytes); };
  try {
    Plan(trace(), {.device = kGpu, .bucket_memory = allocate});
    FAIL() << "there was enough";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kResourceExhausted);
    EXPECT_NE(error.message().find("buckets needs 256.00 KiB on gpu:0"), std::string::npos)
        << error.message();
  }
}

TEST(DeviceReduction, IsProfiledInTheRowOfItsStream) {
  simulated::use_simulated_gpus(1);
  Plan plan(trace(), {.device = kGpu});
  WithDoubling two(device_backend(DeviceType::kGpu).make_stream(kGpu));
  const Profiler profiler;
  const double sum = 1.5 * kElements;
  const std::vector<Tensor> feeds = {Tensor::from<float>({3}, {1})};
  EXPECT_NEAR(plan.run(feeds, {.communicator = &two})[0].item(), 2 * sum, 1e-3 * sum);
  int reductions = 0;
  for (const auto& event : profiler.events()) {
    const bool is_reduction = event.kind == "communication";
    EXPECT_EQ(event.row, is_reduction ? "gpu:0 communication" : "gpu:0 computation") << event.kind;
    if (!is_reduction) continue;
    ++reductions;
    EXPECT_EQ(event.name, str("AllReduce of ", kBytes, " bytes"));
    EXPECT_LT(event.begin, event.end);
  }
  EXPECT_EQ(reductions, 1);
}

}  // namespace
}  // namespace cohort
