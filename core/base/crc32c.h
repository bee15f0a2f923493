#pragma once

#include <cstdint>
#include <string_view>

namespace cohort {

// The Castagnoli cyclic redundancy check of RFC 3720, appendix B.4: "123456789" gives 0xe3069283.
// `before` is the check of the bytes in front of these, if they are checked part by part.
uint32_t crc32c(std::string_view bytes, uint32_t before = 0);

// The rotated and offset form in which TFRecord files store a check, so that the check of data that
// contains checks stays meaningful.
uint32_t masked_crc32c(std::string_view bytes);

}  // namespace cohort
