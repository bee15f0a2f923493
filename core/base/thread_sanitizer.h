#pragma once

// What orders memory without ThreadSanitizer seeing it is told to it by hand: what was written
// before a release of an address can be read after an acquire of it. Without the sanitizer these do
// nothing.
#if defined(__SANITIZE_THREAD__)
extern "C" void __tsan_acquire(void*);
extern "C" void __tsan_release(void*);
#define COHORT_TSAN_ACQUIRE(p) __tsan_acquire(p)
#define COHORT_TSAN_RELEASE(p) __tsan_release(p)
#else
#define COHORT_TSAN_ACQUIRE(p) (void)(p)
#define COHORT_TSAN_RELEASE(p) (void)(p)
#endif
