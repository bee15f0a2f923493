#include "core/collective/rendezvous.h"

#include "core/base/cores.h"
#include "core/base/spin_pause.h"

namespace cohort {
namespace {

// About ten microseconds: less than it takes to put a thread to sleep and wake it.
constexpr int kSpins = 256;

}  // namespace

// Waiting awake pays only where the others can run meanwhile.
Rendezvous::Rendezvous(int size) : size_(size), spins_(available_cores() >= size ? kSpins : 0) {}

void Rendezvous::meet() {
  uint32_t state = state_.load(std::memory_order_acquire);
  if (state & kBroken) throw_error();
  if (!arrive_last()) {
    if (wait_for_change(state) == (state | kBroken)) throw_error();
    return;
  }
  // Only an abort can have changed the state since.
  if (!state_.compare_exchange_strong(state, state + kMeeting, std::memory_order_acq_rel))
    throw_error();
  state_.notify_all();
}

void Rendezvous::part() {
  const uint32_t before = state_.load(std::memory_order_acquire);
  if (arrive_last()) {
    state_.fetch_add(kMeeting, std::memory_order_acq_rel);
    state_.notify_all();
    return;
  }
  uint32_t state = before;
  while ((state & ~kBroken) == (before & ~kBroken)) state = wait_for_change(state);
}

void Rendezvous::abort(const Error& error) {
  {
    const std::lock_guard lock(mutex_);
    if (!error_) error_ = error;
  }
  state_.fetch_or(kBroken, std::memory_order_acq_rel);
  state_.notify_all();
}

bool Rendezvous::arrive_last() {
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 < size_) return false;
  arrived_.store(0, std::memory_order_relaxed);
  return true;
}

uint32_t Rendezvous::wait_for_change(uint32_t state) const {
  for (int i = 0; i < spins_; ++i) {
    const uint32_t now = state_.load(std::memory_order_acquire);
    if (now != state) return now;
    spin_pause();
  }
  state_.wait(state, std::memory_order_acquire);
  return state_.load(std::memory_order_acquire);
}

void Rendezvous::throw_error() {
  const std::lock_guard lock(mutex_);
  throw *error_;
}

}  // namespace cohort
