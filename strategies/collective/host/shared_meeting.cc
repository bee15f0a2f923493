#include "strategies/collective/host/shared_meeting.h"

#include <algorithm>
#include <cstring>
#include <ctime>
#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <thread>
#include <unistd.h>

#include "core/base/comma_separated.h"
#include "core/base/cores.h"
#include "core/base/spin_pause.h"
#include "core/base/thread_sanitizer.h"

namespace cohort {
namespace {

using Clock = std::chrono::steady_clock;

// How a rank waits before it sleeps, from which it takes long to wake: a few microseconds awake,
// then with others let go first, which leaves a core to ranks that share it.
constexpr int kSpins = 64;
constexpr std::chrono::microseconds kYieldingTime{200};
// How often a sleeper looks after the others.
constexpr std::chrono::milliseconds kLook{100};
// How long ranks that have met wait for each other when their group has ended: one of them, in
// another process, may be stopped, which may be why.
constexpr std::chrono::milliseconds kEndedPatience{1000};
// Stages of the error that is written once.
constexpr uint32_t kNoError = 0, kWritingError = 1, kErrorWritten = 2;
// Who writes an error takes no longer, unless it was killed in between.
constexpr std::chrono::milliseconds kWritingTime{1000};

// Ranks of one process may see a group's memory at addresses of their own, and the order between
// them may come by way of a rank elsewhere: here ThreadSanitizer hears of all meetings.
char order_of_meetings;

// Waits awake, a while, until `done()`.
template <typename Done>
void spin(int spins, const Done& done) {
  for (int i = 0; i < spins; ++i) {
    if (done()) return;
    spin_pause();
  }
  for (const auto begin = Clock::now(); Clock::now() - begin < kYieldingTime;) {
    if (done()) return;
    sched_yield();
  }
}

template <size_t kRoom>
uint32_t store_text(const std::string& text, char (&room)[kRoom]) {
  const size_t bytes = std::min(text.size(), kRoom);
  std::memcpy(room, text.data(), bytes);
  return static_cast<uint32_t>(bytes);
}

template <size_t kRoom>
std::string load_text(const char (&room)[kRoom], uint32_t bytes) {
  return {room, std::min<size_t>(bytes, kRoom)};
}

}  // namespace

void futex_wait(std::atomic<uint32_t>& word, uint32_t expected, std::chrono::milliseconds limit) {
  const timespec timeout{limit.count() / 1000, limit.count() % 1000 * 1'000'000};
  syscall(SYS_futex, &word, FUTEX_WAIT, expected, &timeout, nullptr, 0);
}

void futex_wake_all(std::atomic<uint32_t>& word) {
  syscall(SYS_futex, &word, FUTEX_WAKE, INT32_MAX, nullptr, nullptr, 0);
}

std::string SharedMeeting::name(int rank) const {
  const auto at = static_cast<size_t>(rank);
  if (peers_.tasks[at].empty()) return str("rank ", number(rank), " (pid ", peers_.pids[at], ")");
  return str(peers_.tasks[at], " (rank ", number(rank), ", pid ", peers_.pids[at], ")");
}

std::string SharedMeeting::peer(int rank) const {
  const std::string& task = peers_.tasks[static_cast<size_t>(rank)];
  return task.empty() ? name(rank) : task;
}

std::optional<int> HostPeers::find_ended() const {
  for (const Watched& process : processes)
    if (process.watch.ended()) return process.rank;
  return std::nullopt;
}

// Waiting awake pays only where the others can run meanwhile.
SharedMeeting::SharedMeeting(const ControlBlock& control, const HostPeers& peers, int rank,
                             int size, std::optional<std::chrono::milliseconds> limit,
                             const StallWarning& stall)
    : control_(control),
      shared_(control.meeting()),
      peers_(peers),
      rank_(rank),
      size_(size),
      limit_(limit),
      stall_(stall),
      spins_(available_cores() >= size ? kSpins : 0) {}

void SharedMeeting::come(uint32_t breaking, const Reference& waiting) {
  const uint32_t before = shared_.state.load(std::memory_order_acquire);
  if ((before & breaking) != 0) throw error();
  control_.rank(rank_).meetings.store(++meetings_, std::memory_order_relaxed);
  COHORT_TSAN_RELEASE(&order_of_meetings);
  if (shared_.arrived.fetch_add(1, std::memory_order_acq_rel) + 1 < static_cast<uint32_t>(size_)) {
    wait(before, breaking, waiting);
  } else {
    shared_.arrived.store(0, std::memory_order_relaxed);
    complete(breaking);
  }
  COHORT_TSAN_ACQUIRE(&order_of_meetings);
}

void SharedMeeting::complete(uint32_t breaking) {
  uint32_t state = shared_.state.load(std::memory_order_relaxed);
  do {
    if ((state & breaking) != 0) throw error();
  } while (!shared_.state.compare_exchange_weak(state, state + kMeeting));
  if (shared_.sleepers.load() != 0) futex_wake_all(shared_.state);
}

void SharedMeeting::wait(uint32_t before, uint32_t breaking, const Reference& waiting) {
  constexpr uint32_t kBits = kBroken | kLost;
  const auto completed = [&](uint32_t state) { return (state & ~kBits) != (before & ~kBits); };
  spin(spins_, [&] { return shared_.state.load(std::memory_order_acquire) != before; });
  const auto begin = Clock::now();
  std::optional<Clock::time_point> saw_end;  // of the group
  // Threads of this process that have met all come, and write into each other's memory until then.
  const bool may_give_up = breaking == kBroken || !peers_.processes.empty();
  constexpr std::chrono::milliseconds kNone = std::chrono::milliseconds::max();
  const auto limit = may_give_up ? limit_.value_or(kNone) : kNone;
  bool may_warn = warns_;
  while (true) {
    const uint32_t state = shared_.state.load(std::memory_order_acquire);
    if (completed(state)) return;
    if ((state & breaking) != 0) throw error();
    const auto now = Clock::now();
    const auto waited = std::chrono::duration_cast<std::chrono::milliseconds>(now - begin);
    if (waited >= limit) {
      // Of a meeting that the last rank has come to meanwhile, all finish together.
      end(late(waiting), kBroken | breaking);
      continue;
    }
    if ((state & kBroken) != 0 && !saw_end) saw_end = now;
    if (may_give_up && saw_end && now - *saw_end >= kEndedPatience) {
      lose(error());
      continue;
    }
    if (may_warn && stall_.is_due(waited)) {
      may_warn = false;
      warn(waiting);
    }
    shared_.sleepers.fetch_add(1);
    futex_wait(shared_.state, state, std::min(kLook, limit - waited));
    shared_.sleepers.fetch_sub(1);
    if (shared_.state.load(std::memory_order_acquire) == state) check_peers();
  }
}

void SharedMeeting::check_peers() {
  const uint32_t before = shared_.state.load(std::memory_order_acquire);
  const auto ended = peers_.find_ended();
  // Whoever came to the last meeting may go.
  if (!ended || shared_.state.load(std::memory_order_acquire) != before) return;
  lose(Error(Code::kUnavailable, name(*ended) + " has ended", peer(*ended)));
}

bool SharedMeeting::ended() const {
  return (shared_.state.load(std::memory_order_acquire) & kBroken) != 0;
}

bool SharedMeeting::lost() const {
  return (shared_.state.load(std::memory_order_acquire) & kLost) != 0;
}

Error SharedMeeting::error() const {
  if (shared_.error_stage.load(std::memory_order_acquire) != kErrorWritten)
    return Error(Code::kAborted, "the group has ended; who ended it was killed before it said why");
  return Error(code_of(shared_.error_code), load_text(shared_.message, shared_.message_bytes),
               load_text(shared_.peer, shared_.peer_bytes));
}

void SharedMeeting::end(const Error& error, uint32_t bits) {
  if (!try_store(error)) {
    const auto deadline = Clock::now() + kWritingTime;
    while (shared_.error_stage.load(std::memory_order_acquire) != kErrorWritten &&
           Clock::now() < deadline)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  shared_.state.fetch_or(bits);
  futex_wake_all(shared_.state);
  for (int r = 0; r < size_; ++r) ring(r);
}

bool SharedMeeting::try_store(const Error& error) {
  uint32_t stage = kNoError;
  if (!shared_.error_stage.compare_exchange_strong(stage, kWritingError)) return false;
  shared_.error_code = static_cast<int32_t>(error.code());
  shared_.message_bytes = store_text(error.message(), shared_.message);
  shared_.peer_bytes = store_text(error.peer(), shared_.peer);
  shared_.error_stage.store(kErrorWritten, std::memory_order_release);
  return true;
}

SharedMeeting::Absence SharedMeeting::find_absent() const {
  Absence absent;
  for (int r = 0; r < size_; ++r) {
    if (control_.rank(r).meetings.load(std::memory_order_relaxed) >= meetings_) {
      absent.is_first = absent.is_first && r >= rank_;
      continue;
    }
    absent.ranks.push_back(r);
  }
  const auto name_of = [this](int r) { return name(r); };
  absent.names = absent.ranks.empty() ? "nobody" : comma_separated(absent.ranks, name_of);
  return absent;
}

Error SharedMeeting::late(const Reference& waiting) const {
  const Absence absent = find_absent();
  return Error(Code::kDeadlineExceeded,
               str(waiting.describe(waiting.object), " took longer than ", limit_->count(),
                   " ms: ", name(rank_), " waits for ", absent.names),
               absent.ranks.empty() ? "" : peer(absent.ranks[0]));
}

void SharedMeeting::warn(const Reference& waiting) const {
  const Absence absent = find_absent();
  if (absent.is_first && !absent.ranks.empty())
    stall_.say(name(rank_), waiting.describe(waiting.object), absent.names);
}

void SharedMeeting::await_bell(std::atomic<uint32_t>& bell, uint32_t seen) {
  const auto rung = [&] { return bell.load(std::memory_order_acquire) != seen; };
  spin(spins_, rung);
  if (rung()) return;
  auto& sleepers = control_.rank(rank_).bell_sleepers;
  sleepers.fetch_add(1);
  futex_wait(bell, seen, kLook);
  sleepers.fetch_sub(1);
}

void SharedMeeting::ring(int rank) {
  RankState& state = control_.rank(rank);
  state.bell.fetch_add(1);
  if (state.bell_sleepers.load() != 0) futex_wake_all(state.bell);
}

}  // namespace cohort
