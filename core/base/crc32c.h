#pragma once

#include <cstdint>
#include <string_view>

namespace cohort {

// The Castagnoli cyclic redundancy check of RFC 3720, appendix B.4: "123456789" gives 0xe3069283.
uint32_t crc32c(std::string_view bytes);

// The rotated and offset form in which TFRecord files store a check, so that the check of data that
// contains checks stays meaningful.
uint32_t masked_crc32c(std::string_view bytes);

}  // namespace cohort
