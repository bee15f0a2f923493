#include "core/collective/message_board.h"

#include <algorithm>
#include <cstring>

namespace cohort {
namespace {

template <typename Post>
bool match(const Post& send, const Post& receive) {
  return send.is_send && !receive.is_send && send.peer == receive.rank &&
         (receive.peer == kAnyRank || receive.peer == send.rank) &&
         (receive.tag == kAnyTag || receive.tag == send.tag);
}

}  // namespace

int64_t MessageBoard::post(int rank, const SendCall& call) {
  return post({.id = 0,
               .rank = rank,
               .is_send = true,
               .source = call.source,
               .target = nullptr,
               .bytes = call.bytes,
               .peer = call.destination,
               .tag = call.tag});
}

int64_t MessageBoard::post(int rank, const ReceiveCall& call) {
  return post({.id = 0,
               .rank = rank,
               .is_send = false,
               .source = nullptr,
               .target = call.target,
               .bytes = call.capacity,
               .peer = call.source,
               .tag = call.tag});
}

int64_t MessageBoard::post(Post post) {
  Lock lock(mutex_);
  if (error_) throw *error_;
  post.id = posted_++;
  const Post* partner = find_partner(post);
  const int64_t id = post.id, partner_id = partner == nullptr ? -1 : partner->id;
  const bool is_send = post.is_send;
  posts_.push_back(std::move(post));
  if (partner_id >= 0) move(is_send ? id : partner_id, is_send ? partner_id : id, lock);
  return id;
}

Received MessageBoard::wait(int64_t id) {
  Lock lock(mutex_);
  while (true) {
    Post& post = get(id);
    if (is_done(post)) {
      const Post ended = std::move(post);
      posts_.erase(posts_.begin() + (&post - posts_.data()));
      if (ended.error) throw *ended.error;
      if (ended.state != State::kEnded) throw *error_;
      return ended.received;
    }
    changed_.wait(lock);
  }
}

bool MessageBoard::is_done(int64_t id) {
  const Lock lock(mutex_);
  return is_done(get(id));
}

bool MessageBoard::is_done(const Post& post) const {
  return post.state == State::kEnded || (error_ && post.state == State::kPosted);
}

void MessageBoard::abort(const Error& error) {
  {
    const Lock lock(mutex_);
    if (!error_) error_ = error;
  }
  changed_.notify_all();
}

void MessageBoard::withdraw(int rank) {
  Lock lock(mutex_);
  const auto own = [&](const Post& post) { return post.rank == rank; };
  changed_.wait(lock, [&] {
    return std::none_of(posts_.begin(), posts_.end(), [&](const Post& post) {
      return own(post) && post.state == State::kMoving;
    });
  });
  std::erase_if(posts_, own);
}

MessageBoard::Post* MessageBoard::find(int64_t id) {
  const auto at =
      std::find_if(posts_.begin(), posts_.end(), [&](const Post& post) { return post.id == id; });
  return at == posts_.end() ? nullptr : &*at;
}

MessageBoard::Post& MessageBoard::get(int64_t id) {
  Post* const post = find(id);
  if (post == nullptr) refuse_unknown_message(id);
  return *post;
}

MessageBoard::Post* MessageBoard::find_partner(const Post& post) {
  const auto at = std::find_if(posts_.begin(), posts_.end(), [&](const Post& other) {
    return other.state == State::kPosted &&
           (post.is_send ? match(post, other) : match(other, post));
  });
  return at == posts_.end() ? nullptr : &*at;
}

void MessageBoard::move(int64_t send_id, int64_t receive_id, Lock& lock) {
  Post *send = find(send_id), *receive = find(receive_id);
  send->state = receive->state = State::kMoving;
  const void* const source = send->source;
  void* const target = receive->target;
  const int64_t bytes = send->bytes;
  std::optional<Error> error;
  if (bytes > receive->bytes)
    error = Error(Code::kInvalidArgument,
                  str("rank ", send->rank, " sends ", bytes, " bytes with tag ", send->tag,
                      ", but rank ", receive->rank, " has room for ", receive->bytes));
  lock.unlock();
  if (!error && bytes > 0) std::memcpy(target, source, static_cast<size_t>(bytes));
  lock.lock();
  send = find(send_id);
  receive = find(receive_id);
  send->error = receive->error = error;
  receive->received = {send->rank, send->tag, bytes};
  send->state = receive->state = State::kEnded;
  changed_.notify_all();
}

}  // namespace cohort
