#include "strategies/collective/tcp/frame.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <type_traits>

#include "core/base/crc32c.h"

namespace cohort::tcp {
namespace {

static_assert(sizeof(FrameHeader) == 56);
static_assert(sizeof(Hello) == 48);

template <typename T>
uint32_t check_of(const T& value) {
  return crc32c({reinterpret_cast<const char*>(&value), offsetof(T, check)});
}

// A notice on the wire: this, the text, the peer.
struct NoticeHeader {
  uint32_t magic = kMagic;
  Notice::Kind kind = Notice::Kind::kEnd;
  uint64_t sequence = 0;
  uint64_t content = 0;
  int32_t code = 0;
  int32_t sender = -1, receiver = -1;
  uint32_t text_bytes = 0, peer_bytes = 0;
  uint32_t rest_check = 0;  // of text and peer
  uint32_t reserved = 0;
  uint32_t check = 0;
};
static_assert(std::has_unique_object_representations_v<NoticeHeader>);
static_assert(std::has_unique_object_representations_v<FrameHeader>);

}  // namespace

void seal(FrameHeader& header) { header.check = check_of(header); }
bool is_intact(const FrameHeader& header) {
  return header.magic == kMagic && header.check == check_of(header) && header.length <= kMaxPayload;
}

void seal(Hello& hello) { hello.check = check_of(hello); }
bool is_intact(const Hello& hello) {
  return hello.magic == kMagic && hello.check == check_of(hello);
}

std::string encode(const Notice& notice) {
  const size_t text = std::min(notice.text.size(), kMaxNotice / 2);
  const size_t peer = std::min<size_t>(notice.peer.size(), 256);
  const std::string rest = notice.text.substr(0, text) + notice.peer.substr(0, peer);
  NoticeHeader header{.kind = notice.kind,
                      .sequence = notice.sequence,
                      .content = notice.content,
                      .code = static_cast<int32_t>(notice.code),
                      .sender = notice.sender,
                      .receiver = notice.receiver,
                      .text_bytes = static_cast<uint32_t>(text),
                      .peer_bytes = static_cast<uint32_t>(peer),
                      .rest_check = crc32c(rest)};
  header.check = check_of(header);
  return std::string(reinterpret_cast<const char*>(&header), sizeof header) + rest;
}

std::optional<Notice> take_notice(std::string& bytes) {
  NoticeHeader header;
  if (bytes.size() < sizeof header) return std::nullopt;
  std::memcpy(&header, bytes.data(), sizeof header);
  if (header.magic != kMagic || header.check != check_of(header) ||
      header.text_bytes > kMaxNotice || header.peer_bytes > kMaxNotice)
    fail(Code::kDataLoss, "a notice has a wrong header");
  const size_t rest = size_t{header.text_bytes} + header.peer_bytes;
  if (bytes.size() < sizeof header + rest) return std::nullopt;
  if (crc32c(std::string_view(bytes).substr(sizeof header, rest)) != header.rest_check)
    fail(Code::kDataLoss, "a notice has a wrong check");
  Notice notice{.kind = header.kind,
                .sequence = header.sequence,
                .code = code_of(header.code),
                .text = bytes.substr(sizeof header, header.text_bytes),
                .peer = bytes.substr(sizeof header + header.text_bytes, header.peer_bytes),
                .content = header.content,
                .sender = header.sender,
                .receiver = header.receiver};
  bytes.erase(0, sizeof header + rest);
  return notice;
}

}  // namespace cohort::tcp
