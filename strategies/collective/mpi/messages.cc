#include "strategies/collective/mpi/messages.h"

#include <algorithm>
#include <cstring>

#include "core/collective/stall_warning.h"

namespace cohort::mpi {
namespace {

// Of one message on their way: while one is copied, another moves.
constexpr size_t kPiecesInFlight = 2;

Error too_long(int sender, int64_t bytes, int tag, int receiver, int64_t room) {
  return {Code::kInvalidArgument, str("rank ", sender, " sends ", bytes, " bytes with tag ", tag,
                                      ", but rank ", receiver, " has room for ", room)};
}

void copy(const void* source, void* target, int64_t bytes) {
  if (bytes > 0) std::memcpy(target, source, static_cast<size_t>(bytes));
}

// How much of a message comes with its announcement.
int64_t attached_bytes(int64_t bytes) { return bytes <= kInlineBytes ? bytes : 0; }

}  // namespace

void Messages::forget_all() {
  for (Post& post : posts_)
    for (const TransferPtr& transfer : post.in_flight) transport_.cancel(transfer);
  sending_.clear();
  receiving_.clear();
  posts_.clear();
}

int64_t Messages::post(const SendCall& call) {
  const int64_t id = add({.is_send = true,
                          .source = static_cast<const char*>(call.source),
                          .bytes = call.bytes,
                          .peer = call.destination,
                          .tag = call.tag});
  Control control{.kind = Control::Kind::kMessage,
                  .rank = static_cast<uint32_t>(rank_),
                  .group = group_,
                  .words = {static_cast<uint64_t>(id), static_cast<uint64_t>(call.tag),
                            static_cast<uint64_t>(call.bytes)}};
  control.payload.resize(static_cast<size_t>(attached_bytes(call.bytes)));
  copy(call.source, control.payload.data(), std::ssize(control.payload));
  transport_.send(process(call.destination), control);
  return id;
}

int64_t Messages::post(const ReceiveCall& call) {
  const int64_t id = add({.is_send = false,
                          .target = static_cast<char*>(call.target),
                          .bytes = call.capacity,
                          .peer = call.source,
                          .tag = call.tag});
  const auto message = std::find_if(announced_.begin(), announced_.end(),
                                    [&](const Announced& m) { return match(posts_.back(), m); });
  if (message != announced_.end()) {
    Announced taken = std::move(*message);
    announced_.erase(message);
    accept(posts_.back(), std::move(taken));
  }
  return id;
}

Messages::State Messages::state(int64_t id) const {
  const Post& post = get(id);
  if (post.state == State::kEnded && post.reply && !post.reply->done) return State::kMoving;
  return post.state;
}

int Messages::peer(int64_t id) const {
  const Post& post = get(id);
  return post.state == State::kMoving ? (post.is_send ? post.peer : post.received.source)
                                      : post.peer;
}

std::string Messages::describe(int64_t id) const {
  const Post& post = get(id);
  const std::string tag = post.tag == kAnyTag ? "any tag" : str("tag ", post.tag);
  if (post.is_send)
    return str("that rank ", post.peer, " takes a message of ", post.bytes, " bytes with ", tag);
  return str("a message of ", post.peer == kAnyRank ? "any rank" : str("rank ", post.peer),
             " with ", tag);
}

std::string Messages::call(int64_t id) const {
  const Post& post = get(id);
  return describe_message(post.is_send, post.tag);
}

Received Messages::take(int64_t id) {
  const Post& post = get(id);
  const Received received = post.received;
  const std::optional<Error> error = post.error;
  forget(id);
  if (error) throw *error;
  return received;
}

void Messages::forget(int64_t id) {
  Post* const post = find(id);
  for (const TransferPtr& transfer : post->in_flight) transport_.cancel(transfer);
  for (Streams* streams : {&sending_, &receiving_})
    for (auto& [peer, stream] : *streams) std::erase(stream, post);
  posts_.remove_if([&](const Post& p) { return p.id == id; });
}

void Messages::receive(int source, Control control) {
  if (control.kind == Control::Kind::kReply) return handle_reply(source, control);
  Announced message{source, static_cast<int64_t>(control.words[0]),
                    static_cast<int>(control.words[1]), static_cast<int64_t>(control.words[2]),
                    std::move(control.payload)};
  const auto receive = std::find_if(posts_.begin(), posts_.end(), [&](const Post& post) {
    return !post.is_send && post.state == State::kPosted && match(post, message);
  });
  if (receive == posts_.end())
    announced_.push_back(std::move(message));
  else
    accept(*receive, std::move(message));
}

void Messages::advance() {
  for (Streams* streams : {&sending_, &receiving_})
    for (auto& [peer, stream] : *streams) advance(stream);
}

int64_t Messages::add(Post post) {
  post.id = posted_++;
  posts_.push_back(std::move(post));
  return posts_.back().id;
}

Messages::Post* Messages::find(int64_t id) {
  return const_cast<Post*>(&static_cast<const Messages*>(this)->get(id));
}

const Messages::Post& Messages::get(int64_t id) const {
  const auto at =
      std::find_if(posts_.begin(), posts_.end(), [&](const Post& post) { return post.id == id; });
  if (at == posts_.end()) refuse_unknown_message(id);
  return *at;
}

bool Messages::match(const Post& receive, const Announced& message) {
  return (receive.peer == kAnyRank || receive.peer == message.source) &&
         (receive.tag == kAnyTag || receive.tag == message.tag);
}

void Messages::accept(Post& receive, Announced message) {
  receive.received = {message.source, message.tag, message.bytes};
  Control reply{.kind = Control::Kind::kReply,
                .rank = static_cast<uint32_t>(rank_),
                .group = group_,
                .words = {static_cast<uint64_t>(message.id), Control::kTaken,
                          static_cast<uint64_t>(receive.bytes), static_cast<uint64_t>(tag_)}};
  receive.state = State::kEnded;
  if (std::ssize(message.data) != attached_bytes(message.bytes)) {
    receive.error =
        Error(Code::kDataLoss, str("rank ", message.source, " sends ", message.bytes,
                                   " bytes with tag ", message.tag, ", but has attached ",
                                   message.data.size(), " to their announcement"));
  } else if (message.bytes > receive.bytes) {
    reply.words[1] = Control::kTooLong;
    receive.error = too_long(message.source, message.bytes, message.tag, rank_, receive.bytes);
  } else if (message.bytes <= kInlineBytes) {
    copy(message.data.data(), receive.target, message.bytes);
  } else {
    reply.words[1] = Control::kSendIt;
    receive.state = State::kMoving;
    receive.remote_tag = tag_;
    receive.bytes = message.bytes;
    receiving_[message.source].push_back(&receive);
  }
  try {
    receive.reply = transport_.send(process(message.source), reply);
  } catch (const Error& error) {
    receive.error = error;
  }
}

void Messages::handle_reply(int source, const Control& control) {
  const auto send = std::find_if(posts_.begin(), posts_.end(), [&](const Post& post) {
    return post.is_send && post.peer == source && post.state == State::kPosted &&
           post.id == static_cast<int64_t>(control.words[0]);
  });
  if (send == posts_.end()) return;  // given up, or of no message of ours to that rank
  switch (control.words[1]) {
    case Control::kSendIt:
      send->state = State::kMoving;
      send->remote_tag = static_cast<int>(control.words[3]);
      return sending_[source].push_back(&*send);
    case Control::kTooLong:
      send->error =
          too_long(rank_, send->bytes, send->tag, source, static_cast<int64_t>(control.words[2]));
      [[fallthrough]];
    default:
      send->state = State::kEnded;
  }
}

void Messages::advance(std::deque<Post*>& stream) {
  while (!stream.empty()) {
    Post& post = *stream.front();
    try {
      move(post);
    } catch (const Error& error) {
      post.error = error;
    }
    if (!post.error && post.moved < post.bytes) return;
    post.state = State::kEnded;
    stream.pop_front();
  }
}

void Messages::move(Post& post) {
  const int other = process(post.is_send ? post.peer : post.received.source);
  while (!post.in_flight.empty() && post.in_flight.front()->done) {
    const Transfer& transfer = *post.in_flight.front();
    check(transfer.error, str("moving a message, process ", other));
    if (!post.is_send) copy(transfer.piece.get(), post.target + post.moved, transfer.bytes);
    post.moved += transfer.bytes;
    post.in_flight.pop_front();
  }
  while (post.in_flight.size() < kPiecesInFlight && post.started < post.bytes) {
    const int64_t bytes = std::min(transport_.pool().bytes(), post.bytes - post.started);
    if (post.is_send) {
      Piece piece = transport_.pool().take();
      copy(post.source + post.started, piece.get(), bytes);
      post.in_flight.push_back(transport_.send(other, post.remote_tag, std::move(piece), bytes));
    } else {
      post.in_flight.push_back(transport_.receive(other, post.remote_tag, bytes));
    }
    post.started += bytes;
  }
}

}  // namespace cohort::mpi
