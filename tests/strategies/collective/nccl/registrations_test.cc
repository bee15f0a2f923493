#include "strategies/collective/nccl/registrations.h"

#include <optional>
#include <set>

#include <gtest/gtest.h>

namespace cohort {
namespace {

constexpr size_t kBytes = 100;

// Memory that is counted while it is there.
class Memory {
 public:
  std::shared_ptr<Buffer> take() {
    ++taken;
    return {new Buffer(*owner_), [this](Buffer* buffer) {
              --taken;
              delete buffer;
            }};
  }
  char* data() { return static_cast<char*>(owner_->data); }

  int taken = 0;

 private:
  const std::shared_ptr<Buffer> owner_ = allocate_host_buffer(kBytes);
};

// A group that counts what it has registered.
struct Group {
  explicit Group(const LentMemory& lent)
      : registrations(
            lent,
            [this](const Buffer& memory) {
              ++calls;
              return *registered.insert(memory.data).first;
            },
            [this](void* handle) { EXPECT_EQ(registered.erase(handle), 1u); }) {}

  int calls = 0;
  std::set<void*> registered;
  Registrations registrations;
};

TEST(LentMemory, IsFoundByItsAddressesWhileItsUserHasIt) {
  Memory memory, other;
  LentMemory lent;
  auto user = lent.lend(memory.take());
  EXPECT_EQ(user->data, memory.data());
  EXPECT_EQ(user->bytes, kBytes);
  EXPECT_EQ(lent.find(memory.data())->data, memory.data());
  EXPECT_EQ(lent.find(memory.data() + kBytes - 1)->data, memory.data());
  EXPECT_EQ(lent.find(memory.data() + kBytes), nullptr);
  EXPECT_EQ(lent.find(memory.data() - 1), nullptr);
  EXPECT_EQ(lent.find(other.data()), nullptr);
  user.reset();
  EXPECT_EQ(lent.find(memory.data()), nullptr);
  EXPECT_EQ(memory.taken, 0);
}

TEST(Registrations, AreOfEachMemoryOnceAndOfNoOther) {
  Memory memory, other;
  LentMemory lent;
  const auto user = lent.lend(memory.take());
  Group group(lent);
  for (const char* address : {memory.data(), memory.data() + 5, other.data()})
    group.registrations.add(address);
  EXPECT_EQ(group.calls, 1);
  EXPECT_EQ(group.registered, std::set<void*>{memory.data()});
  group.registrations.remove_unused();
  EXPECT_EQ(group.registered.size(), 1u) << "it has a user";
  group.registrations.remove_all();
  EXPECT_TRUE(group.registered.empty());
  EXPECT_EQ(memory.taken, 1);
}

TEST(Registrations, HoldMemoryThatItsUserHasLetGoOf) {
  Memory memory;
  LentMemory lent;
  Group group(lent);
  auto user = lent.lend(memory.take());
  group.registrations.add(memory.data());
  user.reset();
  EXPECT_EQ(memory.taken, 1) << "it is registered";
  group.registrations.remove_unused();
  EXPECT_TRUE(group.registered.empty());
  EXPECT_EQ(memory.taken, 0);
}

TEST(Registrations, OfAGroupThatFollowsAreOfTheSameMemory) {
  Memory memory;
  LentMemory lent;
  auto user = lent.lend(memory.take());
  std::optional<Group> first(std::in_place, lent);
  first->registrations.add(memory.data());
  first.reset();  // ended by an error: it has deregistered nothing
  Group second(lent);
  second.registrations.add(memory.data());
  EXPECT_EQ(second.calls, 1);
  user.reset();
  EXPECT_EQ(memory.taken, 1);
  second.registrations.remove_all();
  EXPECT_EQ(memory.taken, 0);
}

}  // namespace
}  // namespace cohort
