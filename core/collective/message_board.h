#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <vector>

#include "core/collective/communicator.h"

namespace cohort {

// Where ranks that are threads of one process leave messages for each other: sends and receives
// wait here until both sides of a message are there, and the later one copies it. Thread-safe.
class MessageBoard {
 public:
  // The results identify what was posted, by `rank`, to `wait`; they are never negative.
  int64_t post(int rank, const SendCall& call);
  int64_t post(int rank, const ReceiveCall& call);
  Received wait(int64_t id);
  bool is_done(int64_t id);
  // Every present and later wait throws `error`; the first one given wins.
  void abort(const Error& error);
  // Withdraws what `rank` has posted and not waited for, so that nobody touches its memory.
  void withdraw(int rank);

 private:
  enum class State { kPosted, kMoving, kEnded };
  // One side of a message.
  struct Post {
    int64_t id;
    int rank;
    bool is_send;
    const void* source;  // of a send
    void* target;        // of a receive
    int64_t bytes;       // of the message, or room for it
    int peer, tag;       // of a receive, possibly any
    State state = State::kPosted;
    Received received = {};
    std::optional<Error> error = std::nullopt;
  };
  using Lock = std::unique_lock<std::mutex>;

  int64_t post(Post post);
  Post* find(int64_t id);
  // kInvalidArgument when there is none.
  Post& get(int64_t id);
  bool is_done(const Post& post) const;
  // The earliest post that waits for the other side of `post`; null when there is none.
  Post* find_partner(const Post& post);
  // Copies a message between two posts. They stay where they are, but others may come meanwhile.
  void move(int64_t send_id, int64_t receive_id, Lock& lock);

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Post> posts_;  // in the order in which they came
  int64_t posted_ = 0;
  std::optional<Error> error_;
};

}  // namespace cohort
