#include "strategies/cluster/coordination/prefixed_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/quote.h"
#include "strategies/cluster/coordination/in_memory_store.h"
#include "tests/testing/error_of.h"

namespace cohort::testing {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

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
  const size_t most = KeyValueStore::kMaxKeyBytes - 5;
  for (const size_t bytes : {size_t{0}, most + 1}) {
    const Error error = error_of([&] { part.set(std::string(bytes, 'k'), "value"); });
    EXPECT_EQ(error.code(), Code::kInvalidArgument);
    EXPECT_THAT(error.message(), HasSubstr(str("has ", bytes, " bytes; expected 1 to ", most)));
  }
  part.set(std::string(most, 'k'), "value");
}

TEST(PrefixedStoreTest, ErrorsNameKeysAsCallersDo) {
  InMemoryStore whole;
  PrefixedStore part(whole, "user/");
  const Error missing = error_of([&] { part.get("ready", milliseconds(0)); });
  EXPECT_EQ(missing.code(), Code::kDeadlineExceeded);
  EXPECT_EQ(missing.message(), "nobody has set key \"ready\" within 0 ms");
  part.set("ready", "yes");
  EXPECT_EQ(error_of([&] { part.add("ready", 1); }).message(),
            "key \"ready\" holds \"yes\", which is no number to add to");
  const std::string key(100, 'k');
  const Error long_key = error_of([&] { part.get(key, milliseconds(0)); });
  EXPECT_THAT(long_key.message(), HasSubstr(quote(key))) << "also where it is shown in part";
}

}  // namespace
}  // namespace cohort::testing
