#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "strategies/collective/mpi/messages.h"
#include "strategies/collective/mpi/transport.h"

namespace cohort::mpi {

// What one rank knows of its group: who is in it, what the others have said, and whether it has
// ended.
//
// Collective calls are numbered. A rank takes part in a call to the end ("commits") once it has
// heard from all ranks that they make it; until then, the end of the group frees it. Each rank says
// with the end of the group how many calls it finishes: the others do not wait for it in later
// ones, but finish with it what all have joined. So a rank may leave when its last call has
// returned, though others are still in it.
class Group : public Transport::Receiver {
 public:
  // `id` is the same on all members, which are processes, and no other group's. `tasks` are what
  // errors call the ranks; empty where they have no names.
  Group(std::shared_ptr<Transport> transport, uint64_t id, std::vector<int> members,
        std::vector<std::string> tasks, int rank);
  ~Group() override;
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  int rank() const { return rank_; }
  int size() const { return static_cast<int>(members_.size()); }
  uint64_t id() const { return id_; }
  const std::vector<int>& members() const { return members_; }
  const std::vector<std::string>& tasks() const { return tasks_; }
  // "worker:1 (rank 3)", or "rank 3".
  std::string name(int rank) const;
  // As errors name the one at fault: "worker:1", or "rank 3".
  std::string peer(int rank) const;
  Transport& transport() { return *transport_; }
  const std::shared_ptr<Transport>& shared_transport() const { return transport_; }

  // Ends the group here and tells the others; returns the error with which it has ended, the first
  // one given. What all ranks have joined has its time to be finished. Takes the lock itself, as do
  // the next two.
  Error end(const Error& error);
  // The same by a rank that does not finish `call`.
  Error give_up(const Error& error, uint64_t call);
  // As end, called by the application, as when a rank is lost: what all have joined is finished
  // here if it soon can be. An error that another rank has told, and nobody here has heard, was
  // given first; but why a rank is gone the application knows better.
  void abort(const Error& error);
  // Waits a moment until the others can know of it.
  void flush_end();

  // --- All below under the transport's lock.

  Messages& messages() { return messages_; }
  TransferPtr send(int rank, Control control);
  // The tag under which this rank receives the data of collectives.
  int tag() const { return tag_; }

  void commit(uint64_t call) { committed_ = call + 1; }
  // Whether some rank does not finish the call.
  bool is_over(uint64_t call) const { return call >= first_unfinished_; }
  // Of the group's end; there is one where a call is over.
  const Error& error() const { return *error_; }
  // Whether waiting for what was under way when the group ended has become pointless.
  bool patience_is_over() const;
  bool has_ended() const { return error_.has_value(); }

  // What rank `r` has said of collectives and not been heard.
  std::deque<Control>& calls(int r) { return inboxes_[static_cast<size_t>(r)].calls; }
  std::deque<Control>& texts(int r) { return inboxes_[static_cast<size_t>(r)].texts; }

  void receive(int process, Control control) override;
  void advance() override { messages_.advance(); }

 private:
  struct Inbox {
    std::deque<Control> calls, texts;
  };
  void hear_others();
  void note_end(Error error, uint64_t first_unfinished);
  void announce_end();

  const std::shared_ptr<Transport> transport_;
  const uint64_t id_;
  const std::vector<int> members_;
  const std::vector<std::string> tasks_;
  const int rank_;
  const int tag_;
  std::vector<Inbox> inboxes_;
  Messages messages_;
  std::optional<Error> error_;
  Clock::time_point patience_end_;  // once it has ended
  uint64_t committed_ = 0;          // calls that this rank takes part in to the end
  uint64_t announced_ = UINT64_MAX, first_unfinished_ = UINT64_MAX;
  std::vector<TransferPtr> announcements_;
};

}  // namespace cohort::mpi
