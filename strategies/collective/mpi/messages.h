#pragma once

#include <deque>
#include <list>
#include <map>
#include <optional>
#include <vector>

#include "core/collective/communicator.h"
#include "strategies/collective/mpi/transport.h"

namespace cohort::mpi {

// The messages between this rank and the others of its group. A sender announces each message, with
// all of it if it is small; the receiver matches it with what it asks for and replies; then the
// rest follows in pieces, one message after the other between two ranks. All calls under the
// transport's lock.
class Messages {
 public:
  // `members` are processes, in rank order. `tag` is the one under which this rank receives pieces.
  Messages(Transport& transport, uint64_t group, const std::vector<int>& members, int rank, int tag)
      : transport_(transport), group_(group), members_(members), rank_(rank), tag_(tag) {}
  Messages(const Messages&) = delete;
  Messages& operator=(const Messages&) = delete;

  // The results identify what was posted.
  int64_t post(const SendCall& call);
  int64_t post(const ReceiveCall& call);
  // What has become of it. kInvalidArgument when there is no such post.
  enum class State { kPosted, kMoving, kEnded };
  State state(int64_t id) const;
  // "a message of rank 2 with tag 5"; and the rank waited for, or kAnyRank.
  std::string describe(int64_t id) const;
  int peer(int64_t id) const;
  // As a StallWarning calls it.
  std::string call(int64_t id) const;
  // The result of what has ended, or its error.
  Received take(int64_t id);
  // Nobody waits for it any more, and its memory may go away.
  void forget(int64_t id);

  // Before the group goes: MPI drops what has not come.
  void forget_all();

  // kMessage or kReply of another rank.
  void receive(int source, Control control);
  // Moves pieces on. Does not throw: errors end the post.
  void advance();

 private:
  struct Post {
    int64_t id;
    bool is_send;
    const char* source;  // of a send
    char* target;        // of a receive
    int64_t bytes;       // of the message, or room for it
    int peer, tag;       // of a receive, possibly any
    State state = State::kPosted;
    Received received = {};
    std::optional<Error> error = std::nullopt;
    int remote_tag = 0;
    int64_t started = 0, moved = 0;          // bytes, while it moves
    std::deque<TransferPtr> in_flight = {};  // pieces, in order
    TransferPtr reply = nullptr;             // of a receive, until it has gone
  };
  struct Announced {
    int source;
    int64_t id;
    int tag;
    int64_t bytes;
    std::vector<char> data;
  };
  using Streams = std::map<int, std::deque<Post*>>;  // by peer: what moves, and what will after it

  int64_t add(Post post);
  Post* find(int64_t id);
  const Post& get(int64_t id) const;
  static bool match(const Post& receive, const Announced& message);
  void accept(Post& receive, Announced message);
  void handle_reply(int source, const Control& control);
  void advance(std::deque<Post*>& stream);
  void move(Post& post);
  int process(int rank) const { return members_[static_cast<size_t>(rank)]; }

  Transport& transport_;
  const uint64_t group_;
  const std::vector<int>& members_;
  const int rank_, tag_;
  std::list<Post> posts_;  // in the order in which they came
  std::list<Announced> announced_;
  Streams sending_, receiving_;
  int64_t posted_ = 0;
};

}  // namespace cohort::mpi
