#include "strategies/collective/host/shared_messages.h"

#include <algorithm>
#include <cstring>

#include "core/base/start_threads.h"

namespace cohort {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kInline = static_cast<int64_t>(Lane::kInlineBytes);

Error too_long(int sender, int tag, int64_t bytes, int receiver, int64_t capacity) {
  return Error(Code::kInvalidArgument,
               str("rank ", sender, " sends ", bytes, " bytes with tag ", tag, ", but rank ",
                   receiver, " has room for ", capacity));
}

// Copies between memory and the window of a lane, where position `at` is to be found modulo its
// size.
template <typename Copy>
void for_window(Lane& lane, uint64_t at, int64_t bytes, Copy copy) {
  while (bytes > 0) {
    const size_t offset = at % Lane::kWindowBytes;
    const auto part = std::min<int64_t>(bytes, static_cast<int64_t>(Lane::kWindowBytes - offset));
    copy(lane.window + offset, part);
    at += static_cast<uint64_t>(part);
    bytes -= part;
  }
}

}  // namespace

SharedMessages::SharedMessages(const HostRank& host)
    : host_(host),
      bell_(host.control.rank(host.rank).bell),
      peers_(static_cast<size_t>(host.size)) {}

SharedMessages::~SharedMessages() {
  {
    const Lock lock(mutex_);
    stopping_ = true;
  }
  host_.meeting.ring(host_.rank);
  if (thread_.joinable()) thread_.join();
}

int64_t SharedMessages::start(const SendCall& call) {
  const Lock lock(mutex_);
  if (host_.meeting.ended()) throw host_.meeting.error();
  sends_.push_back({started_, call});
  advance();
  finish_in_background();
  return started_++;
}

int64_t SharedMessages::start(const ReceiveCall& call) {
  const Lock lock(mutex_);
  if (host_.meeting.ended()) throw host_.meeting.error();
  receives_.push_back({started_, call});
  advance();
  finish_in_background();
  return started_++;
}

// Only what is not finished at once needs somebody to finish it. Where there is no thread for that,
// whoever waits does it.
void SharedMessages::finish_in_background() {
  if (thread_.joinable() || !has_unfinished()) return;
  try {
    thread_ = start_thread([this] { loop(); });
  } catch (const Error& error) {
    if (error.code() != Code::kResourceExhausted) throw;
  }
}

Received SharedMessages::wait(int64_t id) {
  const auto begin = Clock::now();
  bool may_warn = true;
  while (true) {
    const uint32_t seen = bell_.load(std::memory_order_acquire);
    // Before the look at what has ended: a peer that has taken its last message may leave at once.
    const bool group_has_ended = host_.meeting.ended();
    {
      const Lock lock(mutex_);
      while (advance()) {
      }
      if (const auto received = finish(id)) return *received;
      if (group_has_ended) throw host_.meeting.error();
      const auto limit = host_.meeting.limit();
      if (limit && Clock::now() - begin >= *limit) {
        host_.meeting.abort(late(id, *limit));
        continue;
      }
    }
    if (may_warn && host_.meeting.stall().is_due(Clock::now() - begin)) {
      may_warn = false;
      warn(id);
    }
    host_.meeting.await_bell(bell_, seen);
    if (bell_.load(std::memory_order_acquire) == seen) host_.meeting.check_peers();
  }
}

bool SharedMessages::is_done(int64_t id) {
  {
    const Lock lock(mutex_);
    while (advance()) {
    }
    if (has_ended(id)) return true;
  }
  host_.meeting.check_peers();  // nobody else looks where nobody waits
  return host_.meeting.ended();
}

bool SharedMessages::has_ended(int64_t id) const {
  const auto is = [&](const auto& operation) { return operation.id == id; };
  if (const auto send = std::find_if(sends_.begin(), sends_.end(), is); send != sends_.end())
    return send->ended;
  const auto receive = std::find_if(receives_.begin(), receives_.end(), is);
  if (receive == receives_.end()) refuse_unknown_message(id);
  return receive->ended;
}

std::optional<Received> SharedMessages::finish(int64_t id) {
  if (!has_ended(id)) return std::nullopt;
  const auto is = [&](const auto& operation) { return operation.id == id; };
  if (const auto send = std::find_if(sends_.begin(), sends_.end(), is); send != sends_.end()) {
    const auto error = send->error;
    sends_.erase(send);
    if (error) throw *error;
    return Received{};
  }
  const auto receive = std::find_if(receives_.begin(), receives_.end(), is);
  const Receive ended = *receive;
  receives_.erase(receive);
  if (ended.error) throw *ended.error;
  return ended.received;
}

Error SharedMessages::late(int64_t id, std::chrono::milliseconds limit) const {
  const auto send =
      std::find_if(sends_.begin(), sends_.end(), [&](const Send& s) { return s.id == id; });
  int peer = kAnyRank;
  std::string what = "a message from any rank";
  if (send != sends_.end()) {
    peer = send->call.destination;
    what = str("a message with tag ", send->call.tag, " to ", host_.meeting.name(peer));
  } else {
    for (const Receive& receive : receives_)
      if (receive.id == id) peer = receive.call.source;
    if (peer != kAnyRank) what = "a message from " + host_.meeting.name(peer);
  }
  return Error(
      Code::kDeadlineExceeded,
      str("rank ", host_.rank, " waited for ", what, " longer than ", limit.count(), " ms"),
      peer == kAnyRank ? "" : host_.meeting.peer(peer));
}

void SharedMessages::warn(int64_t id) {
  std::string call;
  int peer = kAnyRank;
  {
    const Lock lock(mutex_);
    for (const Send& send : sends_)
      if (send.id == id && send.written == 0 && !send.ended) {
        call = describe_message(true, send.call.tag);
        peer = send.call.destination;
      }
    for (const Receive& receive : receives_)
      if (receive.id == id && !receive.matched) {
        call = describe_message(false, receive.call.tag);
        peer = receive.call.source;
      }
  }
  if (peer != kAnyRank)
    host_.meeting.stall().say(host_.meeting.name(host_.rank), call, host_.meeting.name(peer));
}

void SharedMessages::loop() {
  while (true) {
    const uint32_t seen = bell_.load(std::memory_order_acquire);
    bool moved;
    try {
      const Lock lock(mutex_);
      if (stopping_ || host_.meeting.ended()) return;
      moved = advance();
    } catch (const Error&) {
      return;  // it has ended the group, so that whoever waits gets it
    }
    if (!moved) host_.meeting.await_bell(bell_, seen);
  }
}

bool SharedMessages::has_unfinished() const {
  const auto ended = [](const auto& operation) { return operation.ended; };
  return !std::all_of(sends_.begin(), sends_.end(), ended) ||
         !std::all_of(receives_.begin(), receives_.end(), ended);
}

bool SharedMessages::advance() {
  bool moved = false;
  for (int r = 0; r < host_.size; ++r) {
    if (r == host_.rank) continue;
    moved |= take_answers(r);
    moved |= end_read(r);
  }
  // What has not ended with the group never will: its memory may be gone.
  if (host_.meeting.ended()) return moved;
  moved |= tell_all();
  // Before newer messages are heard.
  for (Receive& receive : receives_)
    if (!receive.matched) moved |= match(receive);
  for (int r = 0; r < host_.size; ++r) {
    if (r == host_.rank) continue;
    moved |= write_window(r);
    moved |= hear(r);
    moved |= answer(r);
    moved |= read_window(r);
  }
  return moved;
}

// --- The lane to a receiver

// In order: a slot that becomes free meanwhile is not for a later message to the same rank.
bool SharedMessages::tell_all() {
  bool any = false;
  for (Peer& peer : peers_) peer.full = false;
  for (Send& send : sends_) {
    Peer& to = peer(send.call.destination);
    if (send.number || to.full) continue;
    to.full = !tell(send);
    any |= !to.full;
  }
  return any;
}

bool SharedMessages::tell(Send& send) {
  const SendCall& call = send.call;
  Peer& to = peer(call.destination);
  Lane::Told& slot = lane_to(call.destination).told[to.told % Lane::kSlots];
  if (slot.full.load(std::memory_order_acquire) != 0) return false;
  send.number = to.told++;
  slot.tag = call.tag;
  slot.bytes = call.bytes;
  if (call.bytes > 0 && call.bytes <= kInline)
    std::memcpy(slot.payload, call.source, static_cast<size_t>(call.bytes));
  slot.full.store(1, std::memory_order_release);
  host_.meeting.ring(call.destination);
  return true;
}

SharedMessages::Send* SharedMessages::find_send(int receiver, uint64_t number) {
  const auto at = std::find_if(sends_.begin(), sends_.end(), [&](const Send& send) {
    return send.call.destination == receiver && send.number == number && !send.ended;
  });
  return at == sends_.end() ? nullptr : &*at;
}

bool SharedMessages::take_answers(int receiver) {
  Peer& to = peer(receiver);
  bool any = false;
  while (true) {
    Lane::Answer& slot = lane_to(receiver).answers[to.answers_taken % Lane::kSlots];
    if (slot.full.load(std::memory_order_acquire) == 0) return any;
    Send* const send = find_send(receiver, slot.number);
    if (send == nullptr) refuse_peer(host_, receiver);
    if (slot.verdict == kWanted)
      to.wanted.push_back(*send->number);
    else
      send->ended = true;
    if (slot.verdict == kTooLong)
      send->error = too_long(host_.rank, send->call.tag, send->call.bytes, receiver, slot.capacity);
    slot.full.store(0, std::memory_order_release);
    ++to.answers_taken;
    host_.meeting.ring(receiver);  // which may have more
    any = true;
  }
}

// What the receiver has read to its end.
bool SharedMessages::end_read(int receiver) {
  auto& unread = peer(receiver).unread;
  bool any = false;
  while (!unread.empty() &&
         lane_to(receiver).read.load(std::memory_order_acquire) >= unread.front().end) {
    Send* const send = find_send(receiver, unread.front().number);
    if (send == nullptr) refuse_peer(host_, receiver);
    send->ended = true;
    unread.pop_front();
    any = true;
  }
  return any;
}

bool SharedMessages::write_window(int receiver) {
  Peer& to = peer(receiver);
  if (to.wanted.empty()) return false;
  Lane& lane = lane_to(receiver);
  Send* const send = find_send(receiver, to.wanted.front());
  if (send == nullptr) refuse_peer(host_, receiver);
  const uint64_t unread = to.written - lane.read.load(std::memory_order_acquire);
  if (unread > Lane::kWindowBytes) refuse_peer(host_, receiver);
  const int64_t bytes =
      std::min(static_cast<int64_t>(Lane::kWindowBytes - unread), send->call.bytes - send->written);
  if (bytes == 0) return false;
  const char* from = static_cast<const char*>(send->call.source) + send->written;
  for_window(lane, to.written, bytes, [&](char* window, int64_t part) {
    std::memcpy(window, from, static_cast<size_t>(part));
    from += part;
  });
  send->written += bytes;
  to.written += static_cast<uint64_t>(bytes);
  lane.written.store(to.written, std::memory_order_release);
  if (send->written == send->call.bytes) {
    to.unread.push_back({to.wanted.front(), to.written});
    to.wanted.pop_front();
  }
  host_.meeting.ring(receiver);
  return true;
}

// --- The lane from a sender

SharedMessages::Receive* SharedMessages::find_receive(int64_t id) {
  const auto at = std::find_if(receives_.begin(), receives_.end(),
                               [&](const Receive& receive) { return receive.id == id; });
  return at == receives_.end() ? nullptr : &*at;
}

// Takes what the sender tells to the first receive that wants it, or remembers it for a later one.
bool SharedMessages::hear(int sender) {
  Peer& from = peer(sender);
  bool any = false;
  while (true) {
    Lane::Told& slot = lane_from(sender).told[from.heard % Lane::kSlots];
    if (slot.full.load(std::memory_order_acquire) == 0) return any;
    const Message message{from.heard++, slot.tag, std::max<int64_t>(slot.bytes, 0)};
    const auto receive = std::find_if(receives_.begin(), receives_.end(), [&](const Receive& r) {
      return !r.matched && (r.call.source == kAnyRank || r.call.source == sender) &&
             (r.call.tag == kAnyTag || r.call.tag == message.tag);
    });
    if (receive == receives_.end())
      from.unmatched.push_back(message);
    else
      accept(*receive, sender, message, slot.payload);
    slot.full.store(0, std::memory_order_release);
    host_.meeting.ring(sender);
    any = true;
  }
}

bool SharedMessages::match(Receive& receive) {
  const ReceiveCall& call = receive.call;
  for (int r = 0; r < host_.size; ++r) {
    if (call.source != kAnyRank && call.source != r) continue;
    auto& unmatched = peer(r).unmatched;
    const auto message = std::find_if(unmatched.begin(), unmatched.end(), [&](const Message& m) {
      return call.tag == kAnyTag || call.tag == m.tag;
    });
    if (message == unmatched.end()) continue;
    const Message found = *message;
    unmatched.erase(message);
    accept(receive, r, found, nullptr);
    return true;
  }
  return false;
}

// `payload` is where the bytes of a small message still are, or null.
void SharedMessages::accept(Receive& receive, int sender, const Message& message,
                            const char* payload) {
  receive.matched = true;
  receive.received = {sender, message.tag, message.bytes};
  const int64_t capacity = receive.call.capacity;
  Verdict verdict = kTaken;
  if (message.bytes > capacity) {
    receive.error = too_long(sender, message.tag, message.bytes, host_.rank, capacity);
    verdict = kTooLong;
  } else if (message.bytes > 0 && (payload == nullptr || message.bytes > kInline)) {
    verdict = kWanted;
    peer(sender).coming.push_back(receive.id);
  } else if (message.bytes > 0) {
    std::memcpy(receive.call.target, payload, static_cast<size_t>(message.bytes));
  }
  peer(sender).answers.push_back({verdict, message.number, capacity, receive.id});
}

bool SharedMessages::answer(int sender) {
  Peer& from = peer(sender);
  bool any = false;
  while (!from.answers.empty()) {
    Lane::Answer& slot = lane_from(sender).answers[from.answered % Lane::kSlots];
    if (slot.full.load(std::memory_order_acquire) != 0) return any;
    const Answer& answer = from.answers.front();
    slot.verdict = answer.verdict;
    slot.number = answer.number;
    slot.capacity = answer.capacity;
    slot.full.store(1, std::memory_order_release);
    if (answer.verdict != kWanted) find_receive(answer.receive)->ended = true;
    from.answers.pop_front();
    ++from.answered;
    host_.meeting.ring(sender);
    any = true;
  }
  return any;
}

bool SharedMessages::read_window(int sender) {
  Peer& from = peer(sender);
  Lane& lane = lane_from(sender);
  const uint64_t unread = lane.written.load(std::memory_order_acquire) - from.read;
  if (unread == 0) return false;
  if (unread > Lane::kWindowBytes || from.coming.empty()) refuse_peer(host_, sender);
  Receive& receive = *find_receive(from.coming.front());
  const int64_t bytes =
      std::min(static_cast<int64_t>(unread), receive.received.bytes - receive.read);
  char* to = static_cast<char*>(receive.call.target) + receive.read;
  for_window(lane, from.read, bytes, [&](const char* window, int64_t part) {
    std::memcpy(to, window, static_cast<size_t>(part));
    to += part;
  });
  receive.read += bytes;
  from.read += static_cast<uint64_t>(bytes);
  lane.read.store(from.read, std::memory_order_release);
  if (receive.read == receive.received.bytes) {
    receive.ended = true;
    from.coming.pop_front();
  }
  host_.meeting.ring(sender);
  return true;
}

}  // namespace cohort
