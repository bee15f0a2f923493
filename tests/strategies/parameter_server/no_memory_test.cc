// What an allocation that fails in the middle leaves behind: nothing that others wait for.
#include <chrono>
#include <cstdint>
#include <future>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <utility>

#include <gtest/gtest.h>

#include "core/base/error.h"
#include "proto/parameter_server.pb.h"
#include "strategies/collective/host/process_identity.h"
#include "strategies/collective/host/region_registry.h"
#include "strategies/parameter_server/buffer_cache.h"
#include "strategies/parameter_server/lent_memory.h"
#include "strategies/parameter_server/message_parts.h"
#include "strategies/parameter_server/segments.h"
#include "strategies/parameter_server/service.h"
#include "strategies/parameter_server/shard.h"
#include "strategies/parameter_server/task_pool.h"
#include "strategies/parameter_server/waiting_room.h"
#include "tests/strategies/parameter_server/testing.h"
#include "tests/testing/failing_allocations.h"

namespace cohort::testing {
namespace {

using parameter_server::BorrowedRegions;
using parameter_server::BufferCache;
using parameter_server::Frame;
using parameter_server::kTeamBytes;
using parameter_server::LentRegions;
using parameter_server::ReceivedSegments;
using parameter_server::Shard;
using parameter_server::TaskPool;
using parameter_server::UpdateTeam;
using parameter_server::WaitingRoom;

// Calls `f` again and again: its first allocation fails, then the one after it, until none does.
template <typename F>
void with_each_allocation_failing(const F& f) {
  for (int64_t succeed = 0;; ++succeed) {
    bool has_failed = false;
    allocations_left = succeed;
    try {
      f();
    } catch (const std::bad_alloc&) {
      has_failed = true;
    }
    allocations_left = -1;
    if (!has_failed) return;
  }
}

// Protobuf would end the process where it has none for its descriptions of messages.
TEST(NoMemory, AServerNeedsNoneToLookAtItsFirstRequest) {
  using parameter_server::proto::Request;
  const parameter_server::Service service({.notice = [](const std::string&) {}}, [] {});
  Request request;
  request.mutable_caller()->set_task(std::string(1 << 20, 'x'));
  request.mutable_update()->add_pulls()->set_shard("w");
  const std::string header = request.SerializeAsString();
  constexpr int64_t kMany = 1 << 20;
  allocations_left = kMany;
  parameter_server::check_parts(header, *Request::descriptor());
  EXPECT_EQ(std::exchange(allocations_left, -1), kMany);
}

TEST(NoMemory, ASegmentThatCannotBeTakenIsFreeAgain) {
  char byte = 0;
  ReceivedSegments received(1, [] {});
  with_each_allocation_failing([&] { received.add(nullptr, &byte, 1); });
  EXPECT_GE(received.take_due(), 1u) << "the last one, behind all that failed";
}

TEST(NoMemory, LentMemoryThatCannotBeTakenCountsAsReturned) {
  const auto memory = allocate_shared_buffer(4096);
  LentRegions lent;
  const auto borrowed = std::make_shared<BorrowedRegions>();
  const auto place = lent.locate(memory->data, memory->bytes, [&](const Frame& frame) {
    borrowed->change(frame, this_process());
  });
  ASSERT_TRUE(place);
  with_each_allocation_failing(
      [&] { borrowed->at({.region = place->region, .number = place->offset, .bytes = 1}); });
  const auto returned = std::make_shared<std::promise<void>>();
  auto seen = returned->get_future();
  std::thread([borrowed, returned] {
    borrowed->wait_until_returned();
    returned->set_value();
  }).detach();
  EXPECT_EQ(seen.wait_for(std::chrono::seconds(30)), std::future_status::ready);
}

TEST(NoMemory, MemoryThatCannotBeKeptForOthersIsGivenBack) {
  BufferCache cache(1 << 20);
  auto first = cache.take(100), second = cache.take(100);
  allocations_left = 0;
  first.reset();
  allocations_left = -1;
  const void* const kept = second->data;
  second.reset();
  EXPECT_EQ(cache.take(100)->data, kept);
}

TEST(NoMemory, ATaskThatHasNoneEndsNoOther) {
  std::promise<void> run;
  auto seen = run.get_future();
  TaskPool pool(1);
  pool.run([] { throw std::bad_alloc(); });
  pool.run([&] { run.set_value(); });
  EXPECT_EQ(seen.wait_for(std::chrono::seconds(30)), std::future_status::ready);
}

TEST(NoMemory, ACallThatCannotGoOnIsLookedAtAgain) {
  std::promise<int> gone_on;
  auto seen = gone_on.get_future();
  int attempts = 0;
  WaitingRoom room;
  room.wait({.is_ready = [] { return true; },
             .deadline = WaitingRoom::Time::max(),
             .proceed =
                 [&](bool) {
                   if (++attempts < 3) throw std::bad_alloc();
                   gone_on.set_value(attempts);
                 }});
  ASSERT_EQ(seen.wait_for(std::chrono::seconds(30)), std::future_status::ready);
  EXPECT_EQ(seen.get(), 3);
}

// Else the change after it would be of the same version, and a log that is read again would have
// the one in place of the other.
TEST(NoMemory, AnUpdateThatIsWrittenDownIsMade) {
  const TensorSpec large{DType::kFloat32, {static_cast<int64_t>(kTeamBytes / sizeof(float))}};
  BufferCache buffers(0);
  UpdateTeam team(2);
  Shard shard(whole_shard("w", large), Tensor::zeros(large.dtype, large.shape),
              {.epoch = 1,
               .buffers = &buffers,
               .team = &team,
               .record = [](const parameter_server::Change&) { allocations_left = 0; }});
  parameter_server::IncomingPush push;
  push.task = "worker:0";
  push.mark = {.incarnation = 1, .sequence = 1};
  push.learning_rate = 1;
  push.gradient = Tensor::full(large.dtype, large.shape, 1);
  bool has_failed = false;
  try {
    shard.push(std::move(push));
  } catch (const std::bad_alloc&) {
    has_failed = true;
  }
  allocations_left = -1;
  EXPECT_FALSE(has_failed);
  EXPECT_EQ(shard.version(), 2u);
  EXPECT_EQ(shard.part(0).data<float>()[0], -1);
}

}  // namespace
}  // namespace cohort::testing
