#pragma once

#include <thread>

namespace cohort {

// Between two looks at what another thread is about to change: a moment for the core's other
// hardware thread, without giving the core away.
inline void spin_pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#else
  std::this_thread::yield();
#endif
}

}  // namespace cohort
