#pragma once

#include <string_view>

namespace google::protobuf {
class Descriptor;
}

namespace cohort::parameter_server {

// To be called before a message of a stranger is parsed. Protobuf makes objects of some hundred
// bytes of parts that take two on the wire, such as a push of nothing. kResourceExhausted for a
// message of `type` with more of them, at any depth, than anybody needs; kInvalidArgument for a
// group, which no message of ours has.
void check_parts(std::string_view bytes, const google::protobuf::Descriptor& type);

// For whoever will check messages of `type` and may be short of memory then. Protobuf describes a
// type, and those of its parts, when somebody asks for the first time; where it has no memory for
// that, it ends the process.
void prepare_parts(const google::protobuf::Descriptor& type);

}  // namespace cohort::parameter_server
