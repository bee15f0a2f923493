#include "strategies/cluster/coordination/value_table.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/error.h"
#include "strategies/cluster/coordination/key_value_store.h"
#include "tests/testing/error_of.h"

namespace cohort::coordination {
namespace {

using cohort::testing::error_of;
using ::testing::HasSubstr;

constexpr size_t kMaxValue = KeyValueStore::kMaxValueBytes;

// As many entries of the longest value as there is room for; the keys have three digits.
size_t fill(ValueTable& table) {
  constexpr size_t kEntry = KeyValueStore::kEntryBytes + 3 + kMaxValue;
  constexpr size_t kEntries = KeyValueStore::kMaxStoreBytes / kEntry;
  const std::string value(kMaxValue, 'v');
  for (size_t i = 0; i < kEntries; ++i) table.set(std::to_string(100 + i), value);
  return KeyValueStore::kMaxStoreBytes - kEntries * kEntry;  // are left
}

TEST(ValueTable, HasRoomForKeysValuesAndEntries) {
  ValueTable table;
  const size_t left = fill(table);
  ASSERT_LT(left, kMaxValue);
  const size_t fits = left - KeyValueStore::kEntryBytes - 1;
  const Error full = error_of([&] { table.set("k", std::string(fits + 1, 'v')); });
  EXPECT_EQ(full.code(), Code::kResourceExhausted);
  EXPECT_THAT(full.message(), HasSubstr("no room for key \"k\""));
  table.set("k", std::string(fits, 'v'));
  EXPECT_EQ(error_of([&] { table.set("l", ""); }).code(), Code::kResourceExhausted)
      << "also an empty value takes an entry";
  // What is erased, or replaced by less, makes room.
  table.set("k", std::string(fits - KeyValueStore::kEntryBytes - 1, 'v'));
  table.set("l", "");
  table.erase("l");
  table.erase("k");
  table.set("k", std::string(fits, 'v'));
}

}  // namespace
}  // namespace cohort::coordination
