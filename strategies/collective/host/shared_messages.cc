#include "strategies/collective/host/shared_messages.h"

#include <algorithm>
#include <cstring>

namespace cohort {
namespace {

using Clock = std::chrono::steady_clock;

// What a slot is at: free, told of by the sender, asked for by the receiver, or with the receiver,
// who has all of it or has no room for it.
enum SlotState : uint32_t { kFree, kTold, kWanted, kTaken, kTooLong };

constexpr auto kInline = static_cast<int64_t>(MessageSlot::kInlineBytes);

Error too_long(int sender, int tag, int64_t bytes, int receiver) {
  return Error(Code::kInvalidArgument, str("rank ", sender, " sends ", bytes, " bytes with tag ",
                                           tag, ", but rank ", receiver, " has room for less"));
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
  start_thread();
  return started_++;
}

int64_t SharedMessages::start(const ReceiveCall& call) {
  const Lock lock(mutex_);
  if (host_.meeting.ended()) throw host_.meeting.error();
  receives_.push_back({started_, call});
  advance();
  start_thread();
  return started_++;
}

// Only what is not finished at once needs somebody to finish it.
void SharedMessages::start_thread() {
  if (!thread_.joinable() && has_unfinished()) thread_ = std::thread([this] { loop(); });
}

Received SharedMessages::wait(int64_t id) {
  const auto begin = Clock::now();
  while (true) {
    const uint32_t seen = bell_.load(std::memory_order_acquire);
    {
      const Lock lock(mutex_);
      while (advance()) {
      }
      if (const auto received = finish(id)) return *received;
      if (host_.meeting.ended()) throw host_.meeting.error();
      const auto limit = host_.meeting.limit();
      if (limit && Clock::now() - begin >= *limit) {
        host_.meeting.lose(late(id, *limit));
        continue;
      }
    }
    host_.meeting.await_bell(bell_, seen);
    if (bell_.load(std::memory_order_acquire) == seen) host_.meeting.check_peers();
  }
}

std::optional<Received> SharedMessages::finish(int64_t id) {
  const auto is = [&](const auto& operation) { return operation.id == id; };
  if (const auto send = std::find_if(sends_.begin(), sends_.end(), is); send != sends_.end()) {
    if (!send->ended) return std::nullopt;
    const auto error = send->error;
    sends_.erase(send);
    if (error) throw *error;
    return Received{};
  }
  const auto receive = std::find_if(receives_.begin(), receives_.end(), is);
  if (receive == receives_.end())
    invalid("there is no message ", id, " to wait for: it was waited for already, or is not one ",
            "of this communicator's");
  if (!receive->ended) return std::nullopt;
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
    what = str("a message with tag ", send->call.tag, " to ", host_.meeting.peers().name(peer));
  } else {
    for (const Receive& receive : receives_)
      if (receive.id == id) peer = receive.call.source;
    if (peer != kAnyRank) what = "a message from " + host_.meeting.peers().name(peer);
  }
  return Error(
      Code::kDeadlineExceeded,
      str("rank ", host_.rank, " waited for ", what, " longer than ", limit.count(), " ms"),
      peer == kAnyRank ? "" : host_.meeting.peers().name(peer));
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

MessageSlot& SharedMessages::slot(int sender, int receiver, uint64_t sequence) const {
  return host_.control.lane(sender, receiver).slots[sequence % Lane::kSlots];
}

SharedMessages::Receive* SharedMessages::find_receive(int64_t id) {
  const auto at = std::find_if(receives_.begin(), receives_.end(),
                               [&](const Receive& receive) { return receive.id == id; });
  return at == receives_.end() ? nullptr : &*at;
}

bool SharedMessages::advance() {
  bool moved = false;
  // What has not ended with the group never will: its memory may be gone.
  if (host_.meeting.ended()) return false;
  for (Send& send : sends_)
    if (!send.ended) moved |= advance_send(send);
  for (int r = 0; r < host_.size; ++r)
    if (r != host_.rank) moved |= look(r);
  for (Receive& receive : receives_)
    if (!receive.matched) moved |= match(receive);
  for (int r = 0; r < host_.size; ++r)
    if (r != host_.rank) moved |= read_window(r);
  return moved;
}

// --- The sender's side

bool SharedMessages::advance_send(Send& send) {
  if (!send.sequence && !announce(send)) return false;
  const int receiver = send.call.destination;
  MessageSlot& place = slot(host_.rank, receiver, *send.sequence);
  const uint32_t state = place.state.load(std::memory_order_acquire);
  if (state == kWanted) return write_window(send, host_.control.lane(host_.rank, receiver));
  if (state != kTaken && state != kTooLong) return false;
  if (state == kTooLong)
    send.error = too_long(host_.rank, send.call.tag, send.call.bytes, receiver);
  send.ended = true;
  place.state.store(kFree, std::memory_order_release);
  return true;
}

// Puts the message in a slot, if there is one for it: in order, whatever else waits for one.
bool SharedMessages::announce(Send& send) {
  Peer& peer = peers_[static_cast<size_t>(send.call.destination)];
  MessageSlot& place = slot(host_.rank, send.call.destination, peer.next_sent);
  if (place.state.load(std::memory_order_acquire) != kFree) return false;
  send.sequence = peer.next_sent++;
  place.sequence = *send.sequence;
  place.tag = send.call.tag;
  place.bytes = send.call.bytes;
  if (send.call.bytes > 0 && send.call.bytes <= kInline)
    std::memcpy(place.payload, send.call.source, static_cast<size_t>(send.call.bytes));
  place.state.store(kTold, std::memory_order_release);
  host_.meeting.ring(send.call.destination);
  return true;
}

bool SharedMessages::write_window(Send& send, Lane& lane) {
  Peer& peer = peers_[static_cast<size_t>(send.call.destination)];
  const uint64_t unread = peer.window_written - lane.read.load(std::memory_order_acquire);
  if (unread > Lane::kWindowBytes) refuse_peer(host_, send.call.destination);
  const auto room = static_cast<int64_t>(Lane::kWindowBytes - unread);
  const int64_t bytes = std::min(room, send.call.bytes - send.written);
  if (bytes == 0) return false;
  const char* from = static_cast<const char*>(send.call.source) + send.written;
  for_window(lane, peer.window_written, bytes, [&](char* window, int64_t part) {
    std::memcpy(window, from, static_cast<size_t>(part));
    from += part;
  });
  send.written += bytes;
  peer.window_written += static_cast<uint64_t>(bytes);
  lane.written.store(peer.window_written, std::memory_order_release);
  host_.meeting.ring(send.call.destination);
  return true;
}

// --- The receiver's side

// Takes notice of what a sender has told.
bool SharedMessages::look(int sender) {
  Peer& peer = peers_[static_cast<size_t>(sender)];
  bool any = false;
  while (peer.announced.size() < Lane::kSlots) {
    const MessageSlot& place = slot(sender, host_.rank, peer.next_seen);
    if (place.state.load(std::memory_order_acquire) != kTold || place.sequence != peer.next_seen)
      break;
    peer.announced.push_back({peer.next_seen++, place.tag, std::max<int64_t>(place.bytes, 0)});
    any = true;
  }
  return any;
}

bool SharedMessages::match(Receive& receive) {
  for (int r = 0; r < host_.size; ++r) {
    if (r == host_.rank || (receive.call.source != kAnyRank && receive.call.source != r)) continue;
    auto& announced = peers_[static_cast<size_t>(r)].announced;
    const auto message = std::find_if(announced.begin(), announced.end(), [&](const Announced& a) {
      return receive.call.tag == kAnyTag || receive.call.tag == a.tag;
    });
    if (message == announced.end()) continue;
    const Announced found = *message;
    announced.erase(message);
    accept(receive, r, found);
    return true;
  }
  return false;
}

void SharedMessages::accept(Receive& receive, int sender, const Announced& message) {
  MessageSlot& place = slot(sender, host_.rank, message.sequence);
  receive.matched = true;
  receive.received = {sender, message.tag, message.bytes};
  uint32_t state = kTaken;
  if (message.bytes > receive.call.capacity) {
    receive.error = too_long(sender, message.tag, message.bytes, host_.rank);
    state = kTooLong;
  } else if (message.bytes > kInline) {
    peers_[static_cast<size_t>(sender)].transfers.push_back(
        {message.sequence, receive.id, message.bytes});
    if (peers_[static_cast<size_t>(sender)].transfers.size() > 1) return;
    state = kWanted;
  } else if (message.bytes > 0) {
    std::memcpy(receive.call.target, place.payload, static_cast<size_t>(message.bytes));
  }
  receive.ended = state != kWanted;
  place.state.store(state, std::memory_order_release);
  host_.meeting.ring(sender);
}

bool SharedMessages::read_window(int sender) {
  Peer& peer = peers_[static_cast<size_t>(sender)];
  if (peer.transfers.empty()) return false;
  Transfer& transfer = peer.transfers.front();
  Lane& lane = host_.control.lane(sender, host_.rank);
  const uint64_t unread = lane.written.load(std::memory_order_acquire) - peer.window_read;
  if (unread > Lane::kWindowBytes) refuse_peer(host_, sender);
  const int64_t bytes = std::min(static_cast<int64_t>(unread), transfer.bytes - transfer.read);
  if (bytes == 0) return false;
  Receive& receive = *find_receive(transfer.receive_id);
  char* to = static_cast<char*>(receive.call.target) + transfer.read;
  for_window(lane, peer.window_read, bytes, [&](const char* window, int64_t part) {
    std::memcpy(to, window, static_cast<size_t>(part));
    to += part;
  });
  transfer.read += bytes;
  peer.window_read += static_cast<uint64_t>(bytes);
  lane.read.store(peer.window_read, std::memory_order_release);
  if (transfer.read == transfer.bytes) {
    receive.ended = true;
    slot(sender, host_.rank, transfer.sequence).state.store(kTaken, std::memory_order_release);
    peer.transfers.pop_front();
    if (!peer.transfers.empty())
      slot(sender, host_.rank, peer.transfers.front().sequence)
          .state.store(kWanted, std::memory_order_release);
  }
  host_.meeting.ring(sender);
  return true;
}

}  // namespace cohort
