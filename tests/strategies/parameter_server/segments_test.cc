#include "strategies/parameter_server/segments.h"

#include <vector>

#include "core/base/random.h"
#include "tests/strategies/parameter_server/testing.h"

namespace cohort::testing {
namespace {

using parameter_server::ReceivedSegments;
using parameter_server::SentSegments;

TEST(SentSegments, UseTheWholeArea) {
  SentSegments sent(4 * 64);
  EXPECT_EQ(sent.take(64), 0u);
  EXPECT_EQ(sent.take(1), 64u);
  EXPECT_EQ(sent.take(128), 128u);
  EXPECT_EQ(sent.take(1), std::nullopt);
  sent.give_back(2);
  EXPECT_EQ(sent.take(129), std::nullopt);
  EXPECT_EQ(sent.take(128), 0u);
  EXPECT_EQ(sent.take(1), std::nullopt) << "full, with its end where it begins";
  EXPECT_ERROR(sent.give_back(3), Code::kDataLoss, "3 segments");
  sent.give_back(2);
  EXPECT_EQ(sent.take(4 * 64), 0u);
}

// Any two sides that take, let go and give back in any order: what is in use is never taken again,
// and the sender gets on.
TEST(Segments, NeverOverlapAndNeverEnd) {
  constexpr uint64_t kSeed = 17;
  constexpr size_t kArea = 64 << 10, kMost = kArea / 4;
  RandomStream random(kSeed);
  std::vector<char> area(kArea);
  int news = 0;
  SentSegments sent(kArea);
  ReceivedSegments received(kArea / 8, [&] { ++news; });
  struct InUse {
    size_t begin, end;
    std::shared_ptr<Buffer> memory;
  };
  std::vector<InUse> in_use;
  int taken = 0;
  for (int i = 0; i < 20'000; ++i) {
    const size_t bytes = 1 + random.below(random.below(4) == 0 ? kMost : 100);
    const auto offset = sent.take(bytes);
    if (offset) {
      ++taken;
      ASSERT_LE(*offset + bytes, kArea);
      for (const InUse& other : in_use)
        ASSERT_TRUE(*offset + bytes <= other.begin || *offset >= other.end) << "seed " << kSeed;
      in_use.push_back(
          {*offset, *offset + bytes, received.add(nullptr, area.data() + *offset, bytes)});
    }
    // Where there is no room, everything is let go of in the end, and then there must be some.
    while (!in_use.empty() && (!offset || random.below(3) == 0)) {
      in_use.erase(in_use.begin() + static_cast<ptrdiff_t>(random.below(in_use.size())));
      if (!offset) continue;
      break;
    }
    sent.give_back(received.take_due());
    if (!offset) {
      ASSERT_TRUE(sent.take(bytes)) << "seed " << kSeed << ", step " << i;
      received.add(nullptr, area.data(), bytes);  // and let go of at once
    }
  }
  EXPECT_GT(taken, 1000);
  EXPECT_GT(news, 10);
}

TEST(ReceivedSegments, OfAnEarlierTurnAreForgotten) {
  std::vector<char> area(256);
  ReceivedSegments received(1, [] {});
  auto old = received.add(nullptr, area.data(), 64);
  received.clear();
  const auto young = received.add(nullptr, area.data(), 64);
  old = nullptr;
  EXPECT_EQ(received.take_due(), 0u);
}

}  // namespace
}  // namespace cohort::testing
