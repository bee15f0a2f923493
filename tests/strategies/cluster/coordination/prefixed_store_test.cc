#include "strategies/cluster/coordination/prefixed_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "strategies/cluster/coordination/in_memory_store.h"
#include "tests/testing/error_of.h"

namespace cohort::testing {
namespace {

using std::chrono::milliseconds;

TEST(PrefixedStoreTest, HasKeysOfItsOwn) {
  InMemoryStore whole;
  PrefixedStore part(whole, "user/");
  whole.set("key", "of others");
  EXPECT_EQ(part.find("key"), std::nullopt);
  part.set("key", "own");
  EXPECT_EQ(part.get("key", milliseconds(0)), "own");
  EXPECT_EQ(whole.get("user/key", milliseconds(0)), "own");
  EXPECT_EQ(part.add("count", 2), 2);
  EXPECT_EQ(whole.get("user/count", milliseconds(0)), "2");
  EXPECT_TRUE(part.compare_set("key", "own", "another"));
  EXPECT_EQ(whole.find("user/key"), "another");
  part.erase("key");
  EXPECT_EQ(part.find("key"), std::nullopt);
  EXPECT_EQ(whole.find("key"), "of others");
}

TEST(PrefixedStoreTest, RefusesKeysThatHaveNoBytesOrTooMany) {
  InMemoryStore whole;
  PrefixedStore part(whole, "user/");
  for (const std::string& key : {std::string(), std::string(KeyValueStore::kMaxKeyBytes, 'k')})
    EXPECT_EQ(error_of([&] { part.set(key, "value"); }).code(), Code::kInvalidArgument);
  part.set(std::string(1000, 'k'), "value");
}

}  // namespace
}  // namespace cohort::testing
