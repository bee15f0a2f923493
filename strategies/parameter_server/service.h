#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "strategies/cluster/coordination/random_ids.h"
#include "strategies/parameter_server/buffer_cache.h"
#include "strategies/parameter_server/change_log.h"
#include "strategies/parameter_server/clock_table.h"
#include "strategies/parameter_server/exchange.h"
#include "strategies/parameter_server/local_offer.h"
#include "strategies/parameter_server/lost_pushes.h"
#include "strategies/parameter_server/memory_budget.h"
#include "strategies/parameter_server/roster.h"
#include "strategies/parameter_server/said_lately.h"
#include "strategies/parameter_server/server_options.h"
#include "strategies/parameter_server/shard.h"
#include "strategies/parameter_server/shard_makers.h"
#include "strategies/parameter_server/statistics.h"
#include "strategies/parameter_server/task_pool.h"
#include "strategies/parameter_server/update_team.h"
#include "strategies/parameter_server/value_memory.h"
#include "strategies/parameter_server/waiting_room.h"

namespace cohort::parameter_server::proto {
class Request;
}  // namespace cohort::parameter_server::proto

namespace cohort::parameter_server {

struct SavedShard;

// How a caller's requests come.
enum class SessionKind { kGrpc, kDirect, kSharedMemory };

// A server without its network: shards, and the requests that use them. Thread-safe. Requests may
// be hostile: what does not fit is refused, and has changed nothing.
class Service {
 public:
  // `shut_down` is called when a request asks for the end, on any thread; it must not block.
  Service(const ParameterServerOptions& options, std::function<void()> shut_down);
  ~Service();

  // How a caller of some host may go on without gRPC.
  struct Offer {
    std::optional<LocalOffer> memory = {};
    std::string word = {};  // for a direct connection; empty: it may not
  };
  // Null: nobody may. Nobody calls the one before any more when this returns.
  using Offering =
      std::function<Offer(const std::string& host, const std::shared_ptr<Start>& start)>;
  void set_offering(Offering offering) {
    const std::lock_guard lock(offering_mutex_);
    offering_ = std::move(offering);
  }

  uint64_t epoch() const { return epoch_; }
  // What one caller's requests have in common: a session.
  struct Session {
    std::shared_ptr<Start> start;             // who calls, once that is known
    coordination::CertifiedTasks tasks = {};  // who may
    SessionKind kind = SessionKind::kGrpc;
  };
  void opened();
  void closed(const Session& session);
  // The session is that of a caller who is known by now.
  void enter(const std::shared_ptr<Start>& caller, Session& session);
  // Begins a request, given its header. Throws what the request is to be refused with.
  std::shared_ptr<Exchange> open(std::string_view header, const std::shared_ptr<Caller>& caller,
                                 Session& session);
  // For the statistics.
  void refused() { ++refused_; }
  void sent(uint64_t bytes) { sent_ += bytes; }
  void received(uint64_t bytes) { received_ += bytes; }

  ServerStatistics statistics() const;
  uint64_t sessions() const;
  // Whether a request has asked for the end.
  bool is_ended() const { return ended_; }
  // Whether that is so, or somebody has come, and all who have come have said that their work is
  // done.
  bool is_done() const { return is_ended() || roster_.all_done(); }
  // Who have come and have not said so.
  std::vector<std::string> unfinished() const { return roster_.unfinished(); }
  // Returns when nobody is connected, is_done(), or the time is over.
  void wait_for_callers(std::chrono::milliseconds limit);
  // Why to end, where nobody has been connected for too long (orphaned_after, unclaimed_after).
  std::optional<std::string> is_orphaned() const;
  // Writes all shards to a folder. The log ends with a snapshot in its own. kOutOfRange, and the
  // one in the folder stays, where a shard has diverged (Shard::has_diverged).
  void snapshot(const std::string& folder);
  // Before anybody calls: restores from the folder of the options, if it has a snapshot. Where the
  // last one is damaged a line says so, and it is the one before, from which the log goes on, too;
  // kDataLoss where both are. Returns how many shards there were. kFailedPrecondition where a
  // server of a job with another number of them has written what is there.
  int64_t restore_own();
  // With a log, after restoring: does again what it says, and goes on with it. Whether it said
  // anything. kFailedPrecondition where the options have none and the folder has; kDataLoss.
  bool keep_log();
  // With a snapshot folder, after restoring, or `anew`: writes down from now on what is
  // acknowledged. What the server before this one has written down and the snapshot has not is
  // lost: it is counted when its worker pushes again, has left, or has not come back for long.
  // Errors, as of core/base/file.h, where the folder cannot be made or written to: nor could a
  // snapshot.
  void keep_ledger(bool anew);
  // Counts what is lost and has not been counted before.
  void give_up_lost() { lost_.give_up(); }
  // Restores the shards that are there from a snapshot, or from all those in a folder's folders
  // (read_snapshots), which may have cut the variables into other shards; the marks of pushes only
  // where a shard is the same. A server without shards makes those of its snapshot. Returns how
  // many. All of them or, where it is refused, none: kNotFound where there is no snapshot, or
  // a server's own one has shards, of which none is here (both names are in the message),
  // kInvalidArgument where a shard is another one in it, kResourceExhausted where there is no
  // memory for the rows of all tables; that of rows which go is free for others only afterwards.
  // Only where a file cannot be read any more after it has been checked (kDataLoss), the shards
  // before it are restored: restore again.
  int64_t restore(const std::string& folder);

  // --- For exchanges
  const ParameterServerOptions& options() const { return options_; }
  // kNotFound where there is none, or it is of another birth than this one; 0: whichever there is.
  std::shared_ptr<Shard> shard(const std::string& name, uint64_t birth = 0) const;
  std::shared_ptr<Shard> find(const std::string& name) const;
  // For values and slots.
  size_t memory_left() const { return memory_.left(); }
  // What a shard of this name may take: that, but all where it is there already, or is being made.
  size_t memory_for(const std::string& shard) const;
  // The tasks whose requests are making shards.
  ShardMakers& makers() { return makers_; }
  // False where there is one of this name, or has been made meanwhile; it is then compared:
  // kInvalidArgument. Else kResourceExhausted where there is no memory left for it.
  bool create(const ShardSpec& spec, Tensor initial,
              uint64_t birth = coordination::random_incarnation());
  // kInvalidArgument where a shard that is there is another one than a client wants to make.
  void require_wanted(const Shard& present, const ShardSpec& wanted) const;
  std::vector<std::shared_ptr<Shard>> shards() const;
  // The start of a push's source. kInvalidArgument where that is no lane of a coordinator (lane.h):
  // marks and starts of tasks are their own. kFailedPrecondition where a later start of it has been
  // seen.
  std::shared_ptr<Start> require_present(const std::string& source, uint64_t incarnation);
  // Applies a push, and counts what became of it.
  PushResult push(Shard& shard, IncomingPush push);
  // Says what pushes of a task have shown to be lost.
  void say_lost(const std::string& task) { lost_.say(task); }
  // By its clock a worker takes part no longer. Makes the updates that have waited for it, and may
  // wait for locks.
  void go_on_without(const std::string& task);
  // Who is waited for, for the next update of a shard.
  std::string awaited_by(const Shard& shard);
  // So long a worker that is there is waited for without a word.
  std::chrono::milliseconds quiet_wait() const;
  // Whether that the others wait for these is to be said.
  bool is_slow_news(const std::string& tasks);
  // Until then the next update of a shard may be waited for without a word.
  WaitingRoom::Time time_to_name_awaited(const Shard& shard) const;
  // Says who is waited for, for the next update of a shard, unless that was said a moment ago.
  void name_awaited(const Shard& shard);
  BufferCache& buffers() { return buffers_; }
  TaskPool& pool() { return *pool_; }
  WaitingRoom& waiting_room() { return *waiting_; }
  // Calls `f` with the workers' clocks, alone.
  template <typename F>
  auto with_clocks(const F& f) {
    const std::lock_guard lock(clock_mutex_);
    return f(clocks_);
  }
  // Its work is done.
  void end_work(Start& caller);
  void shut_down();
  Offer offer(const std::string& host, const std::shared_ptr<Start>& start) {
    const std::lock_guard lock(offering_mutex_);
    return offering_ ? offering_(host, start) : Offer();
  }

 private:
  void identify(const proto::Request& request, Session& session);
  void write_snapshot(const std::string& folder);
  [[noreturn]] void refuse_diverged(const ShardSpec& spec) const;
  void require_as_many_servers() const;
  // As restore_own(), from the last one.
  int64_t restore_last();
  int64_t restore_from(const std::string& folder);
  // Makes the shards of a snapshot.
  int64_t make_shards(const std::vector<SavedShard>& saved);
  // Does what the log says again, from this file of it on.
  void replay(int64_t first_file);
  // Who has pushed to these shards.
  void remember(const std::vector<std::shared_ptr<Shard>>& restored);
  // Says that the others wait for a worker, unless that was said a moment ago.
  void name_slow(const std::string& task, double share);
  // Makes the updates that nobody is waited for any more; those that cannot be made, as where they
  // cannot be written down, are tried again.
  void settle_rounds();
  void settle_all();
  // Looks, when its time is over, whether a worker without connections has come back, and else says
  // so where it was waited for.
  void look_for(const std::string& task);
  // Until then those are waited for who were there before this server was started again.
  WaitingRoom::Time time_to_return() const;
  // Calls `action` then, on one of the pool's threads: it may wait for locks and make updates, and
  // the waiting room's thread has the deadlines of others to keep. It must not throw.
  void at(WaitingRoom::Time time, std::function<void()> action);
  Shard::Environment environment();

  const ParameterServerOptions options_;
  const std::function<void()> shut_down_;
  std::mutex offering_mutex_;
  Offering offering_;
  const uint64_t epoch_;
  BufferCache buffers_;
  ValueMemory values_;
  MemoryBudget memory_;
  ShardMakers makers_{memory_, [this] { waiting_->look(); }};
  const std::unique_ptr<UpdateTeam> team_;  // null where one thread applies updates
  std::mutex create_mutex_;                 // held while a shard is made
  mutable std::shared_mutex shards_mutex_;
  std::map<std::string, std::shared_ptr<Shard>> shards_;
  // Who calls. A server that takes the place of this one knows their starts.
  Roster roster_{kMaxTasks, "tasks", [this](const Start& start) { lost_.write_down_start(start); }};
  // For whom functions push.
  Roster lanes_{
      kMaxLanes,
      "lanes: so many calls are in flight, or wait in sums of workers (accumulation_steps)"};
  mutable std::mutex clock_mutex_;
  ClockTable clocks_;
  SaidLately named_slow_;  // of the same mutex
  mutable std::mutex sessions_mutex_;
  // When there is one less, a caller's work is done, or the server has ended.
  std::condition_variable callers_end_;
  std::atomic<bool> ended_ = false;
  uint64_t sessions_ = 0;
  std::map<SessionKind, uint64_t> known_sessions_;  // of callers who are known
  std::chrono::steady_clock::time_point last_closed_;
  std::atomic<uint64_t> applied_ = 0, repeated_ = 0, late_ = 0, refused_ = 0, snapshots_failed_ = 0,
                        received_ = 0, sent_ = 0;
  // With those that shards have dropped. Below 0 for a moment where an update without its last
  // worker is made before the push that it is made of has been counted.
  std::atomic<int64_t> counted_ = 0;
  std::array<std::atomic<uint64_t>, ServerStatistics::kStalenessBins> staleness_{};
  std::mutex settling_mutex_;                  // held while rounds are settled
  std::atomic<bool> settling_wanted_ = false;  // since that began
  std::atomic<bool> settles_again_ = false;    // a time has been set for that
  std::mutex snapshot_mutex_, restore_mutex_;
  std::unique_ptr<ChangeLog> log_;  // made before anybody calls
  LostPushes lost_;
  // Last: their threads use all of the above, and each other.
  std::unique_ptr<TaskPool> pool_;
  std::unique_ptr<WaitingRoom> waiting_;
};

}  // namespace cohort::parameter_server
