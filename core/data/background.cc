#include "core/data/background.h"

#include <system_error>
#include <utility>

#include "core/base/error.h"
#include "core/base/threads.h"

namespace cohort::data {

std::jthread start_background(std::function<void(std::stop_token)> body) {
  try {
    return std::jthread([body = std::move(body)](std::stop_token stop) {
      set_num_threads(1);
      body(stop);
    });
  } catch (const std::system_error& error) {
    fail(Code::kResourceExhausted, "cannot start a thread for a dataset: ", error.what());
  }
}

}  // namespace cohort::data
