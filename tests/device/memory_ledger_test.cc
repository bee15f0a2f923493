#include "core/device/memory_ledger.h"

#include <functional>
#include <limits>

#include <gtest/gtest.h>

namespace cohort {
namespace {

constexpr size_t kMiB = 1024 * 1024;

std::string message_of(const std::function<void()>& act) {
  try {
    act();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kResourceExhausted);
    return error.message();
  }
  ADD_FAILURE() << "nothing was thrown";
  return "";
}

TEST(MemoryLedger, CountsWhatIsHeldAndTheMostThatEverWas) {
  MemoryLedger ledger("gpu:0", 0);
  ledger.take(3 * kMiB, "variable \"w\"");
  ledger.take(kMiB, "intermediates");
  ledger.give_back(3 * kMiB, "variable \"w\"");
  EXPECT_EQ(ledger.used(), kMiB);
  EXPECT_EQ(ledger.peak(), 4 * kMiB);
}

TEST(MemoryLedger, HoldersOfNothingComeAndGo) {
  MemoryLedger ledger("gpu:0", 0);
  ledger.take(0, "a");
  ledger.take(0, "a");
  ledger.take(5, "a");
  ledger.give_back(5, "a");
  ledger.give_back(0, "a");
  ledger.give_back(0, "a");
  EXPECT_EQ(ledger.used(), 0u);
}

TEST(MemoryLedger, BeyondTheLimitNamesWhoAskedTheLimitAndTheLargestHolders) {
  MemoryLedger ledger("gpu:1", 10 * kMiB);
  ledger.take(2 * kMiB, "intermediates");
  ledger.take(6 * kMiB, "variable \"w\"");
  EXPECT_EQ(message_of([&] { ledger.take(3 * kMiB, "variable \"v\""); }),
            "variable \"v\" needs 3.00 MiB on gpu:1, which is limited to 10.00 MiB; 8.00 MiB of it "
            "are held: 6.00 MiB by variable \"w\", 2.00 MiB by intermediates");
  EXPECT_EQ(ledger.used(), 8 * kMiB) << "what was refused is not held";
  ledger.take(2 * kMiB, "variable \"v\"");
}

TEST(MemoryLedger, SizesThatOverflowAreBeyondTheLimit) {
  MemoryLedger ledger("gpu:0", kMiB);
  ledger.take(1, "a byte");
  message_of([&] { ledger.take(std::numeric_limits<size_t>::max(), "everything"); });
}

TEST(MemoryLedger, WhatTheCardRefusesNamesWhatItHasLeft) {
  MemoryLedger ledger("gpu:0", 0);
  ledger.take(kMiB, "intermediates");
  EXPECT_EQ(ledger.refused(512 * kMiB, "variable \"w\"", 100 * kMiB).message(),
            "variable \"w\" needs 512.00 MiB on gpu:0, whose card has 100.00 MiB left; 1.00 MiB of "
            "it are held: 1.00 MiB by intermediates");
}

TEST(MemoryLedger, FewHoldersAreShown) {
  MemoryLedger ledger("gpu:0", 100);
  for (int i = 0; i < 6; ++i) ledger.take(10, str("variable ", i));
  const std::string message = message_of([&] { ledger.take(50, "more"); });
  EXPECT_NE(message.find("10 bytes by variable 5"), std::string::npos) << message;
  EXPECT_NE(message.find(" and 2 more"), std::string::npos) << message;
}

}  // namespace
}  // namespace cohort
