#include "strategies/cluster/net/http2_sizes.h"

#include <algorithm>
#include <span>
#include <string>

#include <gtest/gtest.h>

#include "tests/strategies/cluster/net/http2_frames.h"

namespace cohort::testing {
namespace {

using net::Http2Sizes;
using namespace http2;

constexpr Http2Sizes::Limits kLimits = {
    .message_bytes = 1000, .messages_bytes = 3000, .header_bytes = 300, .usual_bytes = 900};

std::string open(uint32_t stream) { return frame(kHeaders, 4, stream, "h"); }

// The number of bytes behind the preface that are accepted, `step` at a time: all, or those before
// the step that is not.
size_t accepted(std::string frames, size_t step = 1) {
  Http2Sizes sizes(kLimits);
  std::string preface(kPreface);
  EXPECT_TRUE(sizes.accept(preface));
  for (size_t i = 0; i < frames.size(); i += step)
    if (!sizes.accept(std::span(frames).subspan(i, std::min(step, frames.size() - i)))) return i;
  return frames.size();
}
bool accepts(const std::string& frames) { return accepted(frames) == frames.size(); }

std::string message(uint32_t bytes) { return message_prefix(bytes) + std::string(bytes, 'x'); }

TEST(Http2Sizes, AcceptCallsHoweverTheirBytesAreCut) {
  const std::string call =
      frame(kSettings, 0, 0, std::string(18, 's')) + frame(kHeaders, 4, 1, std::string(291, 'h')) +
      frame(kData, 0, 1, message(1000) + message(0) + message(7).substr(0, 3)) + open(3) +
      frame(kData, 0, 3, message(999).substr(0, 500)) + frame(kData, 0, 1, message(7).substr(3)) +
      frame(kData, kEndStream, 1, "") + frame(kData, kEndStream, 3, message(999).substr(500));
  for (const size_t step : {size_t{1}, size_t{2}, size_t{9}, size_t{100}, call.size()})
    EXPECT_EQ(accepted(call, step), call.size()) << step;
}

TEST(Http2Sizes, RefuseAMessageAsSoonAsItsLengthIsKnown) {
  const std::string before = open(1) + frame(kData, 0, 1, message(12));
  EXPECT_EQ(accepted(before + frame(kData, 0, 1, message(1001))), before.size() + 9 + 5 - 1);
  EXPECT_FALSE(accepts(open(1) + frame(kData, 0, 1, message_prefix(UINT32_MAX))));
}

TEST(Http2Sizes, FindTheLengthBehindMessagesOfSeveralFrames) {
  const std::string first = open(5) + open(7) + frame(kData, 0, 5, message(1000).substr(0, 600)) +
                            frame(kData, 0, 7, message_prefix(1000)),
                    rest = message(1000).substr(600);
  EXPECT_TRUE(accepts(first + frame(kData, 0, 5, rest + message_prefix(1000))));
  EXPECT_FALSE(accepts(first + frame(kData, 0, 5, rest + message_prefix(1001))));
}

TEST(Http2Sizes, LimitWhatIsAnnouncedOnAllStreams) {
  std::string three;
  for (const uint32_t stream : {1, 3, 5})
    three += open(stream) + frame(kData, 0, stream, message(1000).substr(0, 900));
  EXPECT_FALSE(accepts(three + open(7) + frame(kData, 0, 7, message_prefix(1))));
  EXPECT_TRUE(accepts(three + open(7) + frame(kData, 0, 7, message_prefix(0))));
  const std::string rest = std::string(105, 'x');
  EXPECT_TRUE(accepts(three + frame(kData, 0, 3, rest) + frame(kData, 0, 3, message_prefix(1000))));
  EXPECT_TRUE(accepts(three + frame(kReset, 0, 3, "code") + open(7) +
                      frame(kData, 0, 7, message_prefix(1000))));
}

TEST(Http2Sizes, CountAHeaderBlockOverItsFrames) {
  const std::string begin = frame(kHeaders, 0, 1, std::string(200, 'h'));
  EXPECT_TRUE(accepts(begin + frame(kContinuation, 4, 1, std::string(82, 'h')) +
                      frame(kHeaders, 4, 3, std::string(200, 'h'))));
  EXPECT_FALSE(accepts(begin + frame(kContinuation, 4, 1, std::string(83, 'h'))));
  EXPECT_FALSE(accepts(frame(kHeaders, 4, 1, std::string(301, 'h'))));
  std::string empty = begin;
  for (int i = 0; i < 100; ++i) empty += frame(kContinuation, 0, 1, "");
  EXPECT_FALSE(accepts(empty));
}

TEST(Http2Sizes, LimitEveryFrameButOfData) {
  for (int type = 1; type < 256; ++type)
    EXPECT_FALSE(accepts(frame(type, 0, 1, std::string(301, 'x')))) << type;
}

TEST(Http2Sizes, ForgetAMessageWhoseStreamEnds) {
  for (const std::string& end : {frame(kReset, 0, 1, "code"), frame(kData, kEndStream, 1, "")})
    EXPECT_FALSE(accepts(open(1) + frame(kData, 0, 1, message_prefix(9)) + end +
                         frame(kData, 0, 1, message_prefix(1001))));
}

TEST(Http2Sizes, TellWhetherALongMessageIsUnderWay) {
  Http2Sizes sizes(kLimits);
  const auto after = [&](std::string frames) {
    EXPECT_TRUE(sizes.accept(frames));
    return sizes.in_long_message();
  };
  EXPECT_FALSE(after(std::string(kPreface) + open(1) + frame(kData, 0, 1, message_prefix(900))));
  EXPECT_FALSE(after(frame(kData, 0, 1, std::string(900, 'x'))));
  EXPECT_TRUE(after(frame(kData, 0, 1, message_prefix(901))));
  EXPECT_TRUE(after(open(3) + frame(kData, kEndStream, 3, message(5))));
  EXPECT_FALSE(after(frame(kData, 0, 1, std::string(901, 'x'))));
  for (const std::string& end : {frame(kReset, 0, 5, "code"), frame(kData, kEndStream, 7, "")}) {
    const uint32_t stream = end[3] == kReset ? 5 : 7;
    EXPECT_TRUE(after(open(stream) + frame(kData, 0, stream, message_prefix(1000))));
    EXPECT_FALSE(after(end));
  }
}

TEST(Http2Sizes, EmptyALongFirstMessageOfACallAlone) {
  Http2Sizes sizes({.message_bytes = 1000,
                    .messages_bytes = 3000,
                    .header_bytes = 300,
                    .usual_bytes = 900,
                    .first_bytes = 10});
  // What goes on, in one piece.
  const auto passed = [&](std::string frames) {
    EXPECT_TRUE(sizes.accept(frames));
    return frames;
  };
  const auto expect_unchanged = [&](const std::string& frames) {
    EXPECT_EQ(passed(frames), frames);
  };
  expect_unchanged(std::string(kPreface));
  expect_unchanged(open(1) + open(3) + frame(kData, 0, 3, message(10) + message(11)));
  EXPECT_EQ(passed(frame(kData, 0, 1, message(11).substr(0, 6))),
            frame(kData, 0, 1, message_prefix(0) + '\x7f'));
  EXPECT_EQ(passed(frame(kData, 0, 1, message(11).substr(6) + message(12))),
            frame(kData, 0, 1, std::string(10, '\x7f') + message(12)));
  expect_unchanged(frame(kData, kEndStream, 3, message(1000)));
  // Of one that has begun to go on, nothing more does.
  std::string begin = open(5) + frame(kData, 0, 5, message_prefix(11).substr(0, 1)),
              rest = frame(kData, 0, 5, message_prefix(11).substr(1));
  EXPECT_TRUE(sizes.accept(begin));
  EXPECT_FALSE(sizes.accept(rest));
}

TEST(Http2Sizes, LimitTheCallsThatSayNothing) {
  std::string calls, ended;
  for (uint32_t stream = 1; stream < 2 * 1025; stream += 2) {
    calls += open(stream);
    ended += frame(kHeaders, 4 | kEndStream, stream, "h");
  }
  EXPECT_FALSE(accepts(calls));
  EXPECT_TRUE(accepts(ended));
}

// What gRPC passes over must not shift where messages begin.
TEST(Http2Sizes, RefuseDataOfAStreamThatIsNotOpenAndASecondHeaderBlock) {
  EXPECT_FALSE(accepts(frame(kData, 0, 1, message_prefix(9))));
  EXPECT_FALSE(accepts(open(3) + frame(kData, 0, 5, message_prefix(9))));
  EXPECT_FALSE(accepts(open(3) + frame(kData, 0, 0, message_prefix(9))));
  EXPECT_FALSE(accepts(open(3) + frame(kHeaders, kEndStream, 3, "h")));
  EXPECT_FALSE(accepts(open(3) + open(1)));
}

TEST(Http2Sizes, HoldALimitedNumberOfStreams) {
  std::string frames;
  for (uint32_t stream = 1; stream < 20'000; stream += 2)
    frames += open(stream) + frame(kData, 0, stream, message_prefix(0).substr(0, 4));
  EXPECT_FALSE(accepts(frames));
}

TEST(Http2Sizes, RefuseWhatIsNoHttp2) {
  Http2Sizes sizes(kLimits);
  std::string begin = "PRI * HT", rest = "XP/2.0", other = "GET / HTTP/1.1\r\n";
  EXPECT_TRUE(sizes.accept(begin));
  EXPECT_FALSE(sizes.accept(rest));
  EXPECT_FALSE(Http2Sizes(kLimits).accept(other));
}

// gRPC does not take it either, and its messages begin elsewhere.
TEST(Http2Sizes, RefusePaddedData) {
  EXPECT_FALSE(accepts(open(1) + frame(kData, kPadded, 1, '\1' + message(3) + 'p')));
}

}  // namespace
}  // namespace cohort::testing
