#pragma once

#include <string_view>

namespace cohort::parameter_server {

// Protobuf makes objects of more than a hundred bytes of parts of a request that take two, such as
// pushes of nothing. kResourceExhausted for a header with so many fields, its own and those of its
// parts, that nobody needs them. To be called before it is parsed.
void check_size(std::string_view header);

}  // namespace cohort::parameter_server
