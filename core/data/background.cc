#include "core/data/background.h"

#include <atomic>
#include <system_error>
#include <utility>

#include "core/base/cores.h"
#include "core/base/error.h"
#include "core/base/threads.h"

namespace cohort::data {

std::jthread start_background(std::function<void(std::stop_token)> body) {
  try {
    return std::jthread([body = std::move(body)](std::stop_token stop) {
      use_all_cores();
      set_num_threads(1);
      std::atomic<bool> stopped = false;
      const std::stop_callback on_stop(stop, [&stopped] { stopped = true; });
      const CancelScope cancellable(stopped);
      body(stop);
    });
  } catch (const std::system_error& error) {
    fail(Code::kResourceExhausted, "cannot start a thread for a dataset: ", error.what());
  }
}

}  // namespace cohort::data
