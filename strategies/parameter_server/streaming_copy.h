#pragma once

#include <cstddef>

namespace cohort::parameter_server {

// From this much on, what is copied has left the cache before anybody reads it.
inline constexpr size_t kStreamedBytes = 16 << 20;

// As memcpy, but past the cache, so that the target's old content is not read from memory first.
// For a part of a copy of kStreamedBytes or more: memcpy only does so for parts that are as large.
void copy_past_cache(void* target, const void* source, size_t bytes);

}  // namespace cohort::parameter_server
