#include "core/base/random.h"

#include <set>
#include <vector>

#include <gtest/gtest.h>

namespace cohort {
namespace {

using Block = std::array<uint32_t, 4>;

// The known answers that Random123 ships (kat_vectors, philox4x32 10).
TEST(Philox, GivesTheKnownAnswers) {
  EXPECT_EQ(philox({0, 0, 0, 0}, {0, 0}), (Block{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}),
            (Block{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Block{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Philox, IsAConstantExpression) {
  static_assert(philox({0, 0, 0, 0}, {0, 0})[0] == 0x6627e8d5);
  static_assert(mix(1, 2, 3) == mix(1, 2, 3));
}

TEST(Mix, TellsApartItsArguments) {
  std::set<uint64_t> seen;
  for (uint64_t seed = 0; seed < 10; ++seed)
    for (uint64_t a = 0; a < 10; ++a)
      for (uint64_t b = 0; b < 10; ++b) seen.insert(mix(seed, a, b));
  EXPECT_EQ(seen.size(), 1000u);
}

TEST(RandomStream, HandsOutPhiloxBlocksInOrder) {
  const uint64_t seed = 0x299f31d0a4093822, stream = 0x0370734413198a2e;
  RandomStream random(seed, stream);
  for (uint32_t block = 0; block < 3; ++block) {
    const auto bits = philox({block, 0, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0});
    EXPECT_EQ(random.next(), join64(bits[0], bits[1]));
    EXPECT_EQ(random.next(), join64(bits[2], bits[3]));
  }
}

TEST(RandomStream, RepeatsForTheSameSeedAndDiffersForAnother) {
  RandomStream a(7, 1), same(7, 1), other_seed(8, 1), other_stream(7, 2);
  for (int i = 0; i < 100; ++i) {
    const uint64_t value = a.next();
    EXPECT_EQ(value, same.next());
    EXPECT_NE(value, other_seed.next());
    EXPECT_NE(value, other_stream.next());
  }
}

TEST(RandomStream, UniformStaysBelowOneWithMeanOneHalf) {
  RandomStream random(11);
  constexpr int kDraws = 100'000;
  double sum = 0;
  for (int i = 0; i < kDraws; ++i) {
    const double x = random.uniform();
    ASSERT_GE(x, 0.0);
    ASSERT_LT(x, 1.0);
    sum += x;
  }
  // The mean's standard deviation is 1 / sqrt(12 * kDraws), about 0.0009.
  EXPECT_NEAR(sum / kDraws, 0.5, 0.005);
}

TEST(RandomStream, BelowReachesEachValueEquallyOften) {
  RandomStream random(5);
  constexpr int kValues = 6, kEach = 10'000;
  std::vector<int> counts(kValues);
  for (int i = 0; i < kValues * kEach; ++i) ++counts.at(random.below(kValues));
  for (int count : counts) EXPECT_NEAR(count, kEach, 500);  // more than 5 standard deviations
}

TEST(RandomStream, BelowHandlesTheExtremes) {
  RandomStream random(3);
  EXPECT_EQ(random.below(0), 0u);
  EXPECT_EQ(random.below(1), 0u);
  for (int i = 0; i < 1000; ++i) {
    EXPECT_LT(random.below(UINT64_MAX), UINT64_MAX);
    EXPECT_LT(random.below((1ull << 63) + 1), (1ull << 63) + 1);
  }
}

TEST(GlobalSeed, IsZeroUntilSet) {
  EXPECT_EQ(global_seed(), 0u);
  set_global_seed(42);
  EXPECT_EQ(global_seed(), 42u);
  set_global_seed(0);
}

}  // namespace
}  // namespace cohort
