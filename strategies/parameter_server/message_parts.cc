#include "strategies/parameter_server/message_parts.h"

#include <cstddef>
#include <cstdint>
#include <set>

#include <google/protobuf/descriptor.h>
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/wire_format_lite.h>

#include "core/base/error.h"

namespace cohort::parameter_server {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::internal::WireFormatLite;
using google::protobuf::io::CodedInputStream;

// More than the pushes and pulls that fit into the longest header; as objects they take 60 MiB.
constexpr size_t kMaxParts = 3 << 17;
// Shorter messages are not worth looking at, whatever becomes of them.
constexpr size_t kSmallBytes = 64 << 10;

// Up to the end or the limit of `in`, or to bytes that are no fields, which parsing refuses.
size_t count_parts(CodedInputStream& in, const Descriptor& type) {
  size_t count = 0;
  while (const uint32_t tag = in.ReadTag()) {
    const auto wire = WireFormatLite::GetTagWireType(tag);
    if (wire == WireFormatLite::WIRETYPE_START_GROUP) invalid("a message with a group");
    const auto* field = type.FindFieldByNumber(WireFormatLite::GetTagFieldNumber(tag));
    const bool is_message = wire == WireFormatLite::WIRETYPE_LENGTH_DELIMITED && field != nullptr &&
                            field->message_type() != nullptr;
    // Unknown fields are kept.
    if (field == nullptr || field->is_repeated() || is_message) ++count;
    if (is_message) {
      const CodedInputStream::Limit limit = in.ReadLengthAndPushLimit();
      count += count_parts(in, *field->message_type());
      in.PopLimit(limit);
    } else if (!WireFormatLite::SkipField(&in, tag)) {
      break;
    }
  }
  return count;
}

void prepare(const Descriptor& type, std::set<const Descriptor*>& prepared) {
  if (!prepared.insert(&type).second) return;
  for (int i = 0; i < type.field_count(); ++i)
    if (const Descriptor* part = type.field(i)->message_type()) prepare(*part, prepared);
}

}  // namespace

void check_parts(std::string_view bytes, const Descriptor& type) {
  if (bytes.size() <= kSmallBytes) return;
  CodedInputStream in(reinterpret_cast<const uint8_t*>(bytes.data()),
                      static_cast<int>(bytes.size()));
  const size_t parts = count_parts(in, type);
  if (parts > kMaxParts)
    fail(Code::kResourceExhausted, "a message of ", parts, " parts; the limit is ", kMaxParts);
}

void prepare_parts(const Descriptor& type) {
  std::set<const Descriptor*> prepared;
  prepare(type, prepared);
}

}  // namespace cohort::parameter_server
