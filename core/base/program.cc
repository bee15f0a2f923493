#include "core/base/program.h"

#include <atomic>
#include <csignal>
#include <cstdio>
#include <exception>

#include "core/base/error.h"

namespace cohort {
namespace {

std::atomic<bool> interrupt_arrived = false;
static_assert(std::atomic<bool>::is_always_lock_free, "a signal handler stores to it");

}  // namespace

void init() {
  interrupt_arrived = false;
  struct sigaction action {};
  action.sa_handler = [](int) { interrupt_arrived = true; };
  action.sa_flags = static_cast<int>(SA_RESETHAND) | SA_RESTART;
  sigaction(SIGINT, &action, nullptr);
}

bool interrupted() { return interrupt_arrived; }

int run_main(const std::function<void()>& body) {
  try {
    init();
    body();
    return 0;
  } catch (const Error& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return exit_code(error.code());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 1;
  }
}

}  // namespace cohort
