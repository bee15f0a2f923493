#include "strategies/collective/tcp/messages.h"

#include <algorithm>
#include <limits>

#include "core/base/start_threads.h"

namespace cohort::tcp {
namespace {

// Offers that nobody has asked for; the senders of more must wait.
constexpr size_t kMaxOffers = 65536;
constexpr uint64_t kAfterAll = std::numeric_limits<uint64_t>::max();
constexpr std::chrono::milliseconds kFlushTime{1000};
constexpr size_t kWords = 0, kContents = 1;  // places of streams
constexpr int64_t kChunk = 256 * 1024;
constexpr uint32_t kTooLong = 2;  // a flag

Error too_long(int sender, int64_t bytes, int tag, int receiver, int64_t room) {
  return Error(Code::kInvalidArgument, str("rank ", sender, " sends ", bytes, " bytes with tag ",
                                           tag, ", but rank ", receiver, " has room for ", room));
}

}  // namespace

Messages::Messages(Control& control, std::vector<net::Stream> links, bool check_payloads,
                   std::chrono::milliseconds timeout, StallWarning stall)
    : control_(control),
      timeout_(timeout),
      stall_(std::move(stall)),
      connections_(make_connections(control, std::move(links), check_payloads)),
      outboxes_(connections_.size()) {
  control_.add_listener(&wake_up_);
}

Messages::~Messages() {
  {
    const Lock lock(mutex_);
    stopping_ = true;
  }
  wake_up_.signal();
  if (thread_.joinable()) thread_.join();
  control_.remove_listener(&wake_up_);
}

int64_t Messages::start(const SendCall& call) {
  const Lock lock(mutex_);
  const int64_t id = add({.id = 0,
                          .is_send = true,
                          .peer = call.destination,
                          .tag = call.tag,
                          .memory = Memory(call.source, call.bytes)});
  say(call.destination, {.kind = FrameKind::kOffer,
                         .sequence = static_cast<uint64_t>(id),
                         .index = static_cast<uint64_t>(call.tag),
                         .total = static_cast<uint64_t>(call.bytes)});
  wake_up_.signal();
  return id;
}

int64_t Messages::start(const ReceiveCall& call) {
  const Lock lock(mutex_);
  const int64_t id = add({.id = 0,
                          .is_send = false,
                          .peer = call.source,
                          .tag = call.tag,
                          .memory = Memory(call.target, call.capacity)});
  Operation& receive = operations_.back();
  const auto offer = std::find_if(offers_.begin(), offers_.end(), [&](const Offer& o) {
    return (call.source == kAnyRank || call.source == o.peer) &&
           (call.tag == kAnyTag || call.tag == o.tag);
  });
  if (offer != offers_.end()) {
    match(*offer, receive);
    offers_.erase(offer);
    for (auto& connection : connections_)
      if (connection != nullptr) connection->unpark();
  }
  wake_up_.signal();
  return id;
}

int64_t Messages::add(Operation operation) {
  control_.check(kAfterAll);
  if (!thread_.joinable()) thread_ = start_thread([this] { loop(); });
  operation.id = static_cast<int64_t>(operation.message = static_cast<uint64_t>(started_++));
  operations_.push_back(std::move(operation));
  return operations_.back().id;
}

bool Messages::is_done(int64_t id) {
  const Lock lock(mutex_);
  return find(id)->state == State::kEnded || stopped_;
}

std::list<Messages::Operation>::iterator Messages::find(int64_t id) {
  const auto operation = std::find_if(operations_.begin(), operations_.end(),
                                      [&](const Operation& o) { return o.id == id; });
  if (operation == operations_.end()) refuse_unknown_message(id);
  return operation;
}

Received Messages::wait(int64_t id) {
  Lock lock(mutex_);
  const auto begin = Clock::now(), deadline = begin + timeout_;
  bool may_warn = stall_.after.count() > 0;
  while (true) {
    const auto operation = find(id);
    if (operation->state == State::kEnded) {
      const Operation ended = std::move(*operation);
      operations_.erase(operation);
      if (ended.error) throw *ended.error;
      return ended.received;
    }
    if (stopped_) {
      operations_.erase(operation);
      control_.check(kAfterAll);
    }
    if (may_warn && stall_.is_due(Clock::now() - begin)) {
      may_warn = false;
      warn(*operation, lock);
      continue;
    }
    changed_.wait_until(lock, may_warn ? std::min(deadline, begin + stall_.after) : deadline);
    if (Clock::now() >= deadline && !stopped_ && operation->state != State::kEnded)
      control_.abort(
          Error(Code::kDeadlineExceeded,
                str("rank ", control_.rank(), " has waited for ",
                    static_cast<double>(timeout_.count()) / 1000, " s ",
                    operation->is_send ? "to send a message to " : "for a message from ",
                    operation->peer == kAnyRank ? "any rank" : control_.name(operation->peer),
                    operation->tag == kAnyTag ? "" : str(" with tag ", operation->tag)),
                operation->peer == kAnyRank ? "" : control_.task(operation->peer)));
  }
}

void Messages::warn(const Operation& operation, Lock& lock) const {
  if (operation.state != State::kWaiting || operation.peer == kAnyRank) return;
  const std::string call = describe_message(operation.is_send, operation.tag);
  const int peer = operation.peer;
  lock.unlock();
  stall_.say(control_.name(control_.rank()), call, control_.name(peer));
  lock.lock();
}

void Messages::flush() {
  Lock lock(mutex_);
  if (!thread_.joinable()) return;
  changed_.wait_for(lock, kFlushTime, [&] { return stopped_ || !has_words(); });
}

bool Messages::has_words() const {
  for (size_t p = 0; p < outboxes_.size(); ++p)
    if (connections_[p] != nullptr && connections_[p]->is_open() &&
        (!outboxes_[p].words.empty() || connections_[p]->has_output()))
      return true;
  return false;
}

void Messages::loop() {
  Lock lock(mutex_);
  try {
    while (!stopping_ && move()) {
      lock.unlock();
      wait_for_news();
      lock.lock();
    }
    // What a peer has taken before the group ended has been taken.
    closing_ = true;
    for (auto& connection : connections_)
      while (connection != nullptr && connection->receive_some(*this)) {
      }
  } catch (const Error& error) {
    if (!lock.owns_lock()) lock.lock();
    control_.abort(error);
  }
  stopped_ = true;
  changed_.notify_all();
}

bool Messages::move() {
  bool moved = true;
  while (moved) {
    moved = false;
    if (control_.has_ended()) return false;
    for (auto& connection : connections_) {
      if (connection == nullptr) continue;
      fill(*connection);
      moved |= connection->send_some();
      moved |= connection->receive_some(*this);
      if (connection->is_open()) continue;
      if (connection->is_corrupt())
        control_.abort(Error(Code::kDataLoss,
                             str(control_.name(connection->peer()), ' ', connection->failure()),
                             control_.task(connection->peer())));
      else
        control_.lost(connection->peer(), connection->failure(), 0);
      return !control_.has_ended();
    }
    if (moved) idle_since_ = Clock::now();
  }
  changed_.notify_all();
  return true;
}

void Messages::fill(Connection& connection) {
  Outbox& outbox = outboxes_[static_cast<size_t>(connection.peer())];
  Stream &words = connection.stream(kWords), &contents = connection.stream(kContents);
  if (!words.empty_frame && !outbox.words.empty()) {
    words = {.header = outbox.words.front(), .empty_frame = true};
    outbox.words.pop_front();
  }
  if (contents.next >= contents.end && !outbox.contents.empty()) {
    const Operation& send = *outbox.contents.front();
    outbox.contents.pop_front();
    contents = {.header = {.kind = FrameKind::kData, .sequence = send.message},
                .memory = &send.memory,
                .end = send.memory.bytes(),
                .ready = send.memory.bytes(),
                .chunk = kChunk};
  }
}

void Messages::wait_for_news() {
  std::vector<pollfd> polled;
  control_.add_polled(wake_up_, polled);
  const size_t of_control = polled.size();
  bool is_awaited = false;
  {
    const Lock lock(mutex_);
    is_awaited = std::any_of(operations_.begin(), operations_.end(),
                             [](const Operation& o) { return o.state != State::kEnded; });
    for (const auto& connection : connections_)
      if (connection != nullptr && connection->is_open()) {
        const bool out = connection->has_output() ||
                         !outboxes_[static_cast<size_t>(connection->peer())].words.empty();
        polled.push_back(
            {connection->fd(),
             static_cast<short>((connection->is_parked() ? 0 : POLLIN) | (out ? POLLOUT : 0)), 0});
      }
  }
  int64_t left = -1;
  if (is_awaited) {
    const auto next_look = control_.look_after_hosts(idle_since_, 0);
    left = std::chrono::ceil<std::chrono::milliseconds>(next_look - Clock::now()).count();
    left = std::clamp<int64_t>(left, 0, 1'000'000);
  }
  poll(polled.data(), polled.size(), static_cast<int>(left));
  wake_up_.clear();
  if (std::any_of(polled.begin() + 1, polled.begin() + static_cast<std::ptrdiff_t>(of_control),
                  [](const pollfd& p) { return p.revents != 0; }))
    control_.read_notices();
}

void Messages::match(const Offer& offer, Operation& receive) {
  const int64_t room = receive.memory.bytes();
  receive.received = {offer.peer, offer.tag, offer.bytes};
  receive.peer = offer.peer;
  receive.message = offer.message;
  receive.state = State::kEnded;
  if (offer.bytes > room) {
    receive.error = too_long(offer.peer, offer.bytes, offer.tag, control_.rank(), room);
    say(offer.peer, {.kind = FrameKind::kTaken,
                     .sequence = offer.message,
                     .total = static_cast<uint64_t>(room),
                     .flags = kTooLong});
  } else if (offer.bytes == 0) {
    say(offer.peer, {.kind = FrameKind::kTaken, .sequence = offer.message});
  } else {
    receive.state = State::kMoving;
    say(offer.peer, {.kind = FrameKind::kAccept, .sequence = offer.message});
  }
  changed_.notify_all();
}

void Messages::say(int peer, const FrameHeader& word) {
  outboxes_[static_cast<size_t>(peer)].words.push_back(word);
}

bool Messages::is_sending(const Operation& send) const {
  const auto peer = static_cast<size_t>(send.peer);
  const auto& queued = outboxes_[peer].contents;
  return connections_[peer]->is_sending(send.memory) ||
         std::find(queued.begin(), queued.end(), &send) != queued.end();
}

Messages::Operation* Messages::find(bool is_send, int peer, uint64_t message) {
  const auto found = std::find_if(operations_.begin(), operations_.end(), [&](const Operation& o) {
    return o.is_send == is_send && o.peer == peer && o.message == message &&
           o.state != State::kEnded && (is_send || o.state == State::kMoving);
  });
  return found == operations_.end() ? nullptr : &*found;
}

bool Messages::accept(int peer, const FrameHeader& header, Destination& destination) {
  if (closing_ && header.kind != FrameKind::kTaken) return false;
  switch (header.kind) {
    case FrameKind::kOffer:
      if (offers_.size() >= kMaxOffers) return false;
      [[fallthrough]];
    case FrameKind::kAccept:
    case FrameKind::kTaken:
      if (header.length != 0) control_.refuse_frame(peer);
      return true;
    case FrameKind::kData: {
      const Operation* receive = find(false, peer, header.sequence);
      if (receive == nullptr || header.index != static_cast<uint64_t>(receive->got) ||
          header.length == 0 || header.length > receive->received.bytes - receive->got)
        control_.refuse_frame(peer);
      destination = {&receive->memory, receive->got};
      return true;
    }
    default:  // of collectives, or of nothing that there is
      control_.refuse_frame(peer);
  }
}

void Messages::arrived(int peer, const FrameHeader& header) {
  if (header.kind == FrameKind::kOffer) {
    const Offer offer{peer, static_cast<int>(header.index & 0x7fffffff), header.sequence,
                      static_cast<int64_t>(header.total)};
    if (offer.bytes < 0 || header.index > 0x7fffffff) control_.refuse_frame(peer);
    const auto receive =
        std::find_if(operations_.begin(), operations_.end(), [&](const Operation& o) {
          return !o.is_send && o.state == State::kWaiting &&
                 (o.peer == kAnyRank || o.peer == peer) && (o.tag == kAnyTag || o.tag == offer.tag);
        });
    if (receive == operations_.end())
      offers_.push_back(offer);
    else
      match(offer, *receive);
    return;
  }
  Operation* const operation = find(header.kind != FrameKind::kData, peer, header.sequence);
  if (operation == nullptr) control_.refuse_frame(peer);
  if (header.kind == FrameKind::kAccept) {
    if (operation->state != State::kWaiting) control_.refuse_frame(peer);
    operation->state = State::kMoving;
    outboxes_[static_cast<size_t>(peer)].contents.push_back(operation);
  } else if (header.kind == FrameKind::kTaken) {
    take_word_of_end(*operation, peer, header);
  } else {
    operation->got += header.length;
    if (operation->got < operation->received.bytes) return;
    operation->state = State::kEnded;
    say(peer, {.kind = FrameKind::kTaken, .sequence = header.sequence});
    changed_.notify_all();
  }
}

void Messages::take_word_of_end(Operation& send, int peer, const FrameHeader& header) {
  const bool has_no_room = (header.flags & kTooLong) != 0;
  // What has not been asked for is taken only where it is nothing.
  const bool fits = send.state == State::kMoving ? !has_no_room && !is_sending(send)
                                                 : has_no_room || send.memory.bytes() == 0;
  if (!fits) control_.refuse_frame(peer);
  if (has_no_room)
    send.error = too_long(control_.rank(), send.memory.bytes(), send.tag, peer,
                          static_cast<int64_t>(header.total));
  send.state = State::kEnded;
  changed_.notify_all();
}

}  // namespace cohort::tcp
