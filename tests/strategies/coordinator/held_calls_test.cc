// What of the closures that a worker has executed still waits in its sums.
#include "strategies/coordinator/held_calls.h"

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace cohort::testing {
namespace {

using coordinator::Closure;
using coordinator::ClosurePtr;
using coordinator::HeldCalls;
using Numbers = std::vector<uint64_t>;

constexpr uint64_t kFirst = 11, kSecond = 12;  // counts

class Held : public ::testing::Test {
 protected:
  // A call of a function was executed, and moves these counts.
  void execute(const HeldCalls::Counts& counts) {
    auto closure = std::make_unique<Closure>();
    closure->number = ++last_number_;
    held_.add(counts) = std::move(closure);
  }
  static Numbers numbers(const std::vector<ClosurePtr>& closures) {
    Numbers numbers;
    for (const ClosurePtr& closure : closures) numbers.push_back(closure->number);
    return numbers;
  }
  Numbers settled() {
    std::vector<ClosurePtr> settled;
    held_.take_settled(settled);
    return numbers(settled);
  }

  HeldCalls held_;
  uint64_t last_number_ = 0;
};

TEST_F(Held, IsSettledWhenTheSumIsComplete) {
  execute({{kFirst, true}});
  execute({{kSecond, true}});
  EXPECT_EQ(settled(), Numbers{});
  execute({{kFirst, false}});
  EXPECT_TRUE(held_.is_mixed()) << "the third one has been sent";
  EXPECT_EQ(settled(), (Numbers{1, 3}));
  EXPECT_FALSE(held_.is_mixed());
  EXPECT_EQ(numbers(held_.take_all()), Numbers{2});
  EXPECT_EQ(held_.size(), 0u);
}

TEST_F(Held, StaysWhereItSharesASumWithWhatWaits) {
  execute({{kFirst, true}, {kSecond, true}});
  execute({{kFirst, false}, {kSecond, true}});
  EXPECT_TRUE(held_.is_mixed());
  EXPECT_EQ(settled(), Numbers{}) << "of both, the second sum waits";
  execute({{kFirst, true}, {kSecond, false}});
  EXPECT_EQ(settled(), Numbers{}) << "now the first one does";
  execute({{kFirst, false}, {kSecond, false}});
  EXPECT_EQ(settled(), (Numbers{1, 2, 3, 4}));
}

// Each sum has two calls. One function uses both, and another one only the first: after a call of
// that, one of the two counts is never 0.
TEST_F(Held, HasABoundWhereSumsAreNeverAllComplete) {
  execute({{kFirst, true}});
  bool first = true, second = false;
  std::vector<ClosurePtr> let_go;
  for (size_t i = 0; i < 2 * HeldCalls::kMost; ++i) {
    first = !first;
    second = !second;
    execute({{kFirst, first}, {kSecond, second}});
    ASSERT_NE(first, second);
    if (i % 512 == 0) {
      ASSERT_EQ(settled(), Numbers{});
    }
    held_.take_excess(let_go);
    ASSERT_LE(held_.size(), HeldCalls::kMost);
  }
  EXPECT_EQ(let_go.size() + held_.size(), 2 * HeldCalls::kMost + 1);
  EXPECT_FALSE(let_go.empty());
  // What waits in sums is known on.
  const size_t left = held_.size();
  ASSERT_TRUE(first);
  execute({{kFirst, false}});
  EXPECT_EQ(settled().size(), left + 1);
}

TEST_F(Held, MayNotHaveBeenSentByACallThatFailed) {
  execute({{kFirst, true}});
  execute({{kSecond, true}});
  execute({{kSecond, false}});
  EXPECT_FALSE(held_.is_dirty());
  std::vector<ClosurePtr> settled;
  EXPECT_EQ(held_.break_off({{kFirst, false}}, settled), 1u);
  EXPECT_EQ(numbers(settled), (Numbers{2, 3, 1})) << "what was sent before, and then its own";
  EXPECT_TRUE(held_.is_dirty());
  held_.take_all();
  EXPECT_FALSE(held_.is_dirty());
}

TEST_F(Held, IsTakenWithItsSums) {
  execute({{kFirst, true}});
  EXPECT_EQ(numbers(held_.take_all()), Numbers{1});
  execute({{kSecond, false}});
  execute({{kFirst, false}, {kSecond, false}});
  EXPECT_EQ(settled(), (Numbers{2, 3}));
}

}  // namespace
}  // namespace cohort::testing
