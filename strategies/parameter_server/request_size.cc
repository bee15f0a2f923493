#include "strategies/parameter_server/request_size.h"

#include <cstddef>
#include <cstdint>

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/wire_format_lite.h>

#include "core/base/error.h"
#include "proto/parameter_server.pb.h"

namespace cohort::parameter_server {
namespace {

using google::protobuf::internal::WireFormatLite;
using google::protobuf::io::CodedInputStream;

// Pushes and pulls of 65,000 shards, which take 20 MiB.
constexpr size_t kMaxFields = 1 << 17;
// Others are not worth looking at, whatever becomes of them.
constexpr size_t kSmallBytes = 64 << 10;

constexpr uint32_t tag_of(int field) {
  return WireFormatLite::MakeTag(field, WireFormatLite::WIRETYPE_LENGTH_DELIMITED);
}

// Up to the end or the limit of `in`, or to bytes that are no fields, which parsing refuses.
size_t count_fields(CodedInputStream& in) {
  size_t count = 0;
  while (const uint32_t tag = in.ReadTag()) {
    ++count;
    if (!WireFormatLite::SkipField(&in, tag)) break;
  }
  return count;
}

size_t count_with_parts(CodedInputStream& in) {
  size_t count = 0;
  while (const uint32_t tag = in.ReadTag()) {
    ++count;
    if (tag == tag_of(proto::Request::kUpdateFieldNumber) ||
        tag == tag_of(proto::Request::kCreateFieldNumber)) {
      const CodedInputStream::Limit limit = in.ReadLengthAndPushLimit();
      count += count_fields(in);
      in.PopLimit(limit);
    } else if (!WireFormatLite::SkipField(&in, tag)) {
      break;
    }
  }
  return count;
}

}  // namespace

void check_size(std::string_view header) {
  if (header.size() <= kSmallBytes) return;
  CodedInputStream in(reinterpret_cast<const uint8_t*>(header.data()),
                      static_cast<int>(header.size()));
  const size_t fields = count_with_parts(in);
  if (fields > kMaxFields)
    fail(Code::kResourceExhausted, "a request of ", fields, " parts; the limit is ", kMaxFields);
}

}  // namespace cohort::parameter_server
