#include "core/base/start_threads.h"

#include <algorithm>
#include <cstddef>
#include <exception>
#include <utility>

#include "core/base/cores.h"

namespace cohort {

std::vector<std::thread> start_threads(int count, const std::function<void(int)>& body,
                                       const std::function<void(const Error&)>& stop) {
  std::vector<std::thread> threads;
  threads.reserve(static_cast<size_t>(std::max(count, 0)));
  try {
    for (int i = 0; i < count; ++i)
      threads.emplace_back([body, i] {
        use_all_cores();
        body(i);
      });
  } catch (const std::exception& thrown) {  // no threads left, or no memory
    const Error error(Code::kResourceExhausted, str("cannot start thread ", threads.size() + 1,
                                                    " of ", count, ": ", thrown.what()));
    stop(error);
    for (std::thread& thread : threads) thread.join();
    throw error;
  }
  return threads;
}

std::thread start_thread(const std::function<void()>& body) {
  return std::move(start_threads(
                       1, [body](int) { body(); }, [](const Error&) {})
                       .front());
}

}  // namespace cohort
