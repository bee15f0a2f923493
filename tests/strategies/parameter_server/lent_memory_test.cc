// Gradients that a server reads where its caller has them, and values that callers read where the
// server has them.
#include "strategies/parameter_server/lent_memory.h"

#include <algorithm>
#include <atomic>
#include <numeric>
#include <thread>

#include "strategies/collective/host/process_identity.h"
#include "strategies/collective/host/region_registry.h"
#include "strategies/parameter_server/streaming_copy.h"
#include "strategies/parameter_server/value_memory.h"
#include "tests/strategies/parameter_server/testing.h"

namespace cohort::testing {
namespace {

using parameter_server::BorrowedRegions;
using parameter_server::Frame;
using parameter_server::LentRegions;
using parameter_server::ValueGuard;
using parameter_server::ValueMemory;

const TensorSpec kLarge{DType::kFloat32, {50'000}};

// In memory that a server can map.
Tensor lendable(const TensorSpec& spec) {
  return Tensor(spec.dtype, spec.shape, parameter_server::memory_to_lend(spec.bytes()));
}

TEST(LentMemory, IsReadWhereItIs) {
  const auto memory = allocate_shared_buffer(10'000);
  auto* const here = static_cast<char*>(memory->data);
  std::iota(here, here + 100, 'a');
  LentRegions lent;
  BorrowedRegions borrowed;
  const auto tell = [&](const Frame& frame) { borrowed.change(frame, this_process()); };
  const auto place = lent.locate(here + 40, 60, tell);
  ASSERT_TRUE(place);
  const auto there = borrowed.at({.region = place->region, .number = place->offset, .bytes = 60});
  EXPECT_EQ(std::string(static_cast<char*>(there->data), 60), std::string(here + 40, 60));
  here[40] = 'z';
  EXPECT_EQ(*static_cast<char*>(there->data), 'z');
}

TEST(LentMemory, OtherMemoryIsNot) {
  LentRegions lent;
  const auto tell = [](const Frame&) { FAIL(); };
  std::vector<char> own(1000);
  EXPECT_FALSE(lent.locate(own.data(), own.size(), tell));
  const auto memory = allocate_shared_buffer(4096);
  EXPECT_FALSE(lent.locate(static_cast<char*>(memory->data) + 1, 4096, tell)) << "beyond its end";
}

TEST(LentMemory, IsTakenBackWhenItHasGone) {
  LentRegions lent;
  BorrowedRegions borrowed;
  const auto tell = [&](const Frame& frame) { borrowed.change(frame, this_process()); };
  auto first = allocate_shared_buffer(4096);
  const auto of_first = lent.locate(first->data, 4096, tell);
  first.reset();
  const auto second = allocate_shared_buffer(4096);
  const auto of_second = lent.locate(second->data, 4096, tell);
  ASSERT_TRUE(of_first && of_second);
  EXPECT_NE(of_first->region, of_second->region);
  EXPECT_ERROR(borrowed.at({.region = of_first->region, .bytes = 1}), Code::kInvalidArgument,
               "has not lent");
  EXPECT_EQ(borrowed.at({.region = of_second->region, .bytes = 1})->bytes, 1u);
}

// What was lent for a call that failed is not used again before the server has done with it.
TEST(LentMemory, IsKeptWhileItMayBeRead) {
  auto memory = std::make_shared<int>(7);
  const std::weak_ptr<int> watched = memory;
  std::atomic<bool> ended = false;
  parameter_server::keep_lent(this_process(), [&] { return ended.load(); }, {std::move(memory)});
  const auto look = [] { parameter_server::keep_lent(this_process(), [] { return true; }, {}); };
  look();
  EXPECT_FALSE(watched.expired());
  ended = true;
  look();
  EXPECT_TRUE(watched.expired());
}

TEST(LentMemory, IsNotKeptForAProcessThatHasEnded) {
  auto memory = std::make_shared<int>(7);
  const std::weak_ptr<int> watched = memory;
  ProcessIdentity another = this_process();
  ++another.start_time;
  parameter_server::keep_lent(another, [] { return false; }, {std::move(memory)});
  EXPECT_TRUE(watched.expired());
}

TEST(ValueMemory, TellsOfChanges) {
  ValueMemory values;
  const auto place = values.take(kLarge.bytes());
  ASSERT_NE(place.value, nullptr);
  const ValueGuard& guard = parameter_server::guard_of(static_cast<const char*>(place.value->data));
  EXPECT_EQ(&guard, place.guard);
  const uint64_t before = guard.sequence();
  EXPECT_NE(before, 0u);
  EXPECT_TRUE(guard.still(before));
  place.guard->begin();
  EXPECT_FALSE(guard.still(before));
  place.guard->end();
  EXPECT_FALSE(guard.still(before));
  EXPECT_TRUE(guard.still(guard.sequence()));
}

TEST(ValueMemory, SmallValuesAreNotWorthIt) { EXPECT_EQ(ValueMemory().take(1000).value, nullptr); }

TEST(LentGradients, MoveTheSameAsCopied) {
  TestServer server;
  const auto client = server.client();
  const auto trained_on = [&](const std::string& name, Tensor gradient) {
    const ShardSpec spec = whole_shard(name, kLarge, optim::Adam(0.01));
    client->create(spec, [] { return Tensor::zeros(kLarge.dtype, kLarge.shape); });
    for (int step = 1; step <= 3; ++step) {
      std::iota(gradient.data<float>(), gradient.data<float>() + kLarge.shape[0],
                static_cast<float>(step));
      client->push({.shard = name, .gradient = gradient, .learning_rate = 0.01});
    }
    return values_of(fetch(*client, spec));
  };
  EXPECT_EQ(trained_on("lent", lendable(kLarge)),
            trained_on("copied", Tensor(kLarge.dtype, kLarge.shape)));
}

// Gradients of neighbouring shards are parts of one tensor, and begin anywhere.
TEST(LentGradients, MayBeginAnywhere) {
  TestServer server;
  const auto client = server.client();
  constexpr int64_t kOdd = 20'001;
  Tensor gradient = lendable({DType::kFloat32, {3 * kOdd}});
  std::iota(gradient.data<float>(), gradient.data<float>() + 3 * kOdd, 0.0F);
  const TensorSpec spec{DType::kFloat32, {kOdd}};
  std::vector<ShardPush> pushes;
  for (int64_t i = 0; i < 3; ++i) {
    const std::string name = str("w", i);
    client->create(whole_shard(name, spec), [&] { return Tensor::zeros(spec.dtype, spec.shape); });
    pushes.push_back({.shard = name,
                      .gradient = gradient.slice_rows(i * kOdd, (i + 1) * kOdd),
                      .learning_rate = 1});
  }
  client->update(pushes, {});
  for (int64_t i = 0; i < 3; ++i) {
    const Tensor value = fetch(*client, whole_shard(str("w", i), spec));
    EXPECT_EQ(value.data<float>()[0], -static_cast<float>(i * kOdd));
    EXPECT_EQ(value.data<float>()[kOdd - 1], -static_cast<float>((i + 1) * kOdd - 1));
  }
}

TEST(StreamingCopy, CopiesAnyBytesAnywhere) {
  for (const size_t from : {0, 1, 31, 64})
    for (const size_t to : {0, 7, 32, 63})
      for (const size_t bytes : {0, 1, 31, 64, 65, 1000, 4096}) {
        std::vector<char> source(8192), target(8192, 'x'), wanted(8192, 'x');
        std::iota(source.begin(), source.end(), 'a');
        std::copy_n(source.begin() + static_cast<ptrdiff_t>(from), bytes,
                    wanted.begin() + static_cast<ptrdiff_t>(to));
        parameter_server::copy_past_cache(target.data() + to, source.data() + from, bytes);
        EXPECT_EQ(target, wanted) << bytes << " bytes from " << from << " to " << to;
      }
}

// Nobody sees half an update, however often somebody else pushes.
TEST(LiveValues, AreNeverHalfChanged) {
  TestServer server;
  const ShardSpec spec = whole_shard("w", {DType::kFloat32, {1'000'000}});
  const auto puller = server.client("worker:0"), pusher = server.client("worker:1");
  puller->create(spec, [&] { return Tensor::zeros(spec.whole.dtype, spec.whole.shape); });
  std::atomic<bool> stop = false;
  std::thread pushing([&] {
    const Tensor ones = Tensor::full(spec.whole.dtype, spec.whole.shape, -1);
    while (!stop) pusher->push({.shard = "w", .gradient = ones, .learning_rate = 1});
  });
  const Tensor target(spec.whole.dtype, spec.whole.shape);
  float last = -1;
  int changes = 0;
  for (int i = 0; i < 2000 && changes < 50; ++i) {
    const ShardPulled pulled = puller->pull({.shard = "w", .target = target});
    const auto values = target.values<float>();
    const float first = values[0];
    EXPECT_EQ(std::ranges::count(values, first), spec.whole.shape[0]) << "pull " << i;
    EXPECT_EQ(first, static_cast<float>(pulled.version.version - 1)) << "its version is another";
    EXPECT_GE(first, last);
    changes += first != std::exchange(last, first);
  }
  stop = true;
  pushing.join();
  EXPECT_EQ(changes, 50);
}

}  // namespace
}  // namespace cohort::testing
