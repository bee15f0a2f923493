#include "strategies/cluster/net/http2_sizes.h"

#include <string>

#include <gtest/gtest.h>

#include "tests/strategies/cluster/net/http2_frames.h"

namespace cohort::testing {
namespace {

using net::Http2Sizes;
using namespace http2;

constexpr Http2Sizes::Limits kLimits = {.message_bytes = 1000, .header_bytes = 300};

// The number of bytes that are accepted, `step` at a time: all, or those before the step that is
// not.
size_t accepted(const std::string& frames, size_t step = 1) {
  const std::string bytes = std::string(kPreface) + frames;
  Http2Sizes sizes(kLimits);
  for (size_t i = 0; i < bytes.size(); i += step)
    if (!sizes.accept(std::string_view(bytes).substr(i, step))) return i;
  return bytes.size();
}
bool accepts(const std::string& frames, size_t step = 1) {
  return accepted(frames, step) == kPreface.size() + frames.size();
}

std::string message(uint32_t bytes) { return message_prefix(bytes) + std::string(bytes, 'x'); }

TEST(Http2Sizes, AcceptCallsHoweverTheirBytesAreCut) {
  const std::string call =
      frame(kSettings, 0, 0, std::string(18, 's')) + frame(kHeaders, 4, 1, std::string(300, 'h')) +
      frame(kData, 0, 1, message(1000) + message(0) + message(7).substr(0, 3)) +
      frame(kHeaders, 4, 3, "h") + frame(kData, 0, 3, message(999).substr(0, 500)) +
      frame(kData, 0, 1, message(7).substr(3)) + frame(kData, kEndStream, 1, "") +
      frame(kData, kEndStream, 3, message(999).substr(500));
  for (const size_t step : {size_t{1}, size_t{2}, size_t{9}, size_t{100}, call.size() * 2})
    EXPECT_TRUE(accepts(call, step)) << step;
}

TEST(Http2Sizes, RefuseAMessageAsSoonAsItsLengthIsKnown) {
  const std::string frames = frame(kData, 0, 1, message(12)) + frame(kData, 0, 1, message(1001));
  const size_t known = frame(kData, 0, 1, message(12)).size() + 9 + 5;
  EXPECT_EQ(accepted(frames), kPreface.size() + known - 1);
  EXPECT_FALSE(accepts(frame(kData, 0, 1, message_prefix(UINT32_MAX))));
}

TEST(Http2Sizes, FindTheLengthBehindMessagesOfSeveralFrames) {
  const std::string first = frame(kData, 0, 5, message(1000).substr(0, 600)),
                    second = frame(kData, 0, 5, message(1000).substr(600) + message_prefix(1001));
  EXPECT_TRUE(accepts(first + frame(kData, 0, 7, message_prefix(1000)) + second.substr(0, 400)));
  EXPECT_FALSE(accepts(first + frame(kData, 0, 7, message_prefix(1000)) + second));
}

TEST(Http2Sizes, CountAHeaderBlockOverItsFrames) {
  const std::string begin = frame(kHeaders, 0, 1, std::string(200, 'h'));
  EXPECT_TRUE(accepts(begin + frame(kContinuation, 4, 1, std::string(100, 'h')) + begin));
  EXPECT_FALSE(accepts(begin + frame(kContinuation, 4, 1, std::string(101, 'h'))));
  EXPECT_FALSE(accepts(frame(kHeaders, 4, 1, std::string(301, 'h'))));
}

TEST(Http2Sizes, LimitEveryFrameButOfData) {
  for (int type = 1; type < 256; ++type)
    EXPECT_FALSE(accepts(frame(type, 0, 0, std::string(301, 'x')))) << type;
}

TEST(Http2Sizes, ForgetAStreamThatEnds) {
  const std::string part = frame(kData, 0, 1, message_prefix(9));
  for (const std::string& end : {frame(kReset, 0, 1, "code"), frame(kHeaders, kEndStream, 1, "h"),
                                 frame(kData, kEndStream, 1, "")})
    EXPECT_FALSE(accepts(part + end + frame(kData, 0, 1, message_prefix(1001))));
  EXPECT_TRUE(accepts(part + frame(kData, 0, 1, std::string(9, '\xff'))));
}

TEST(Http2Sizes, HoldNoMoreStreamsThanServersHave) {
  std::string frames;
  for (uint32_t stream = 1; stream < 200'000; stream += 2)
    frames += frame(kData, 0, stream, message_prefix(9));
  EXPECT_LT(accepted(frames), 100'000u);
}

TEST(Http2Sizes, RefuseWhatIsNoHttp2) {
  Http2Sizes sizes(kLimits);
  EXPECT_TRUE(sizes.accept("PRI * HT"));
  EXPECT_FALSE(sizes.accept("XP/2.0"));
  EXPECT_FALSE(Http2Sizes(kLimits).accept("GET / HTTP/1.1\r\n"));
}

// gRPC does not take it either, and its messages begin elsewhere.
TEST(Http2Sizes, RefusePaddedData) {
  EXPECT_FALSE(accepts(frame(kData, kPadded, 1, '\1' + message(3) + 'p')));
}

}  // namespace
}  // namespace cohort::testing
