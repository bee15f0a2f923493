#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "core/base/error.h"
#include "core/collective/call.h"

// What goes over the wire: frames of a checked header and a payload. Numbers are little-endian, as
// on every machine this is built for.
namespace cohort::tcp {

using Clock = std::chrono::steady_clock;

inline constexpr uint32_t kMagic = 0x54524f43;  // "CORT"
inline constexpr uint32_t kProtocolVersion = 1;
// A longer payload is cut into several frames.
inline constexpr uint32_t kMaxPayload = uint32_t{1} << 20;

enum class FrameKind : uint32_t {
  // Of collectives.
  kRound,         // index: the round of an exchange in which every rank hears of all others
  kPart,          // index: the offset in what goes from sender to receiver
  kContribution,  // index: the offset in the receiver's slice of what is to be combined
  kResult,        // index: the offset in the sender's slice of the combined value
  // Of messages; sequence is the sender's number of the message.
  kOffer,   // index: the tag; total: the size
  kAccept,  // of an offer
  kData,    // index: the offset
  kTaken,   // of a message; total: the room there was, when that was too little
};

// 56 bytes.
struct FrameHeader {
  uint32_t magic = kMagic;
  FrameKind kind = FrameKind::kRound;
  uint64_t sequence = 0;  // with content, the fingerprint of a collective
  uint64_t content = 0;
  uint64_t index = 0;
  uint64_t total = 0;          // bytes of everything that this frame is a piece of
  uint32_t length = 0;         // of the payload
  uint32_t payload_check = 0;  // CRC-32C of the payload, 0 where that is not checked
  uint32_t flags = 0;
  uint32_t check = 0;  // CRC-32C of all before it
};
inline constexpr uint32_t kPayloadChecked = 1;  // a flag

void seal(FrameHeader& header);
// Whether a header came as it was sent.
bool is_intact(const FrameHeader& header);

// What two ranks tell each other first on each of their connections.
enum class Channel : uint32_t { kCollectives, kMessages, kControl };
inline constexpr int kChannels = 3;
struct Token {
  uint64_t high = 0, low = 0;
  bool operator==(const Token&) const = default;
};
inline constexpr uint32_t kLinked = 1, kNotCertified = 2;  // answers
struct Hello {
  uint32_t magic = kMagic;
  uint32_t version = kProtocolVersion;
  Token token;
  uint32_t size = 0;
  uint32_t from = 0;
  uint32_t to = 0;
  Channel channel = Channel::kCollectives;
  uint32_t answer = 0;  // kLinked or kNotCertified from the rank that was called
  uint32_t check = 0;   // CRC-32C of all before it
};
void seal(Hello& hello);
bool is_intact(const Hello& hello);

// What ranks tell each other besides their work: little, but at any time.
struct Notice {
  enum class Kind : uint32_t {
    kEnd,     // the group has ended, with an error
    kReport,  // what the sender is doing in the collective `sequence`
  };
  Kind kind = Kind::kEnd;
  // kEnd: the sender still finishes collectives up to here.
  uint64_t sequence = 0;
  Code code = Code::kUnknown;
  std::string text;  // the error's message, or a description of the call
  std::string peer;  // the error's
  // kReport:
  uint64_t content = 0;
  int32_t sender = -1, receiver = -1;  // two ranks whose sizes do not fit
};
inline constexpr size_t kMaxNotice = 16384;

std::string encode(const Notice& notice);
// Takes the first whole notice from the front of `bytes`, if it is there. kDataLoss for anything
// that is not one.
std::optional<Notice> take_notice(std::string& bytes);

}  // namespace cohort::tcp
