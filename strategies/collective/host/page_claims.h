#pragma once

#include <cstddef>

// Which group's calls write to which pages of this process, so that these can be taken back where a
// call fails. Thread-safe.
namespace cohort {

// Claims the pages of some memory for a call of `group`, until its `holder` releases all that it
// has claimed; false, and nothing done, where another group has claimed one of them.
bool claim_pages(const void* holder, const void* group, const void* memory, size_t bytes);
void release_pages(const void* holder);

}  // namespace cohort
