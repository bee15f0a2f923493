#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/tensor/tensor.h"
#include "strategies/cluster/address.h"
#include "strategies/cluster/environment.h"
#include "strategies/parameter_server/client_options.h"
#include "strategies/parameter_server/compression.h"
#include "strategies/parameter_server/exchange.h"
#include "strategies/parameter_server/shard_spec.h"
#include "strategies/parameter_server/statistics.h"
#include "strategies/parameter_server/versions.h"

namespace cohort {

namespace parameter_server {
namespace proto {
class Push;
class Reply;
class Request;
class Update;
}  // namespace proto
class ClientCalls;
}  // namespace parameter_server

// A gradient for a shard.
struct ShardPush {
  std::string shard;
  Tensor
      gradient;  // of the shard's spec, or [rows, ...] when `rows` is there, else kInvalidArgument
  double learning_rate = 0;
  // Which of an optimizer's updates this is, from 1: the shard's count goes on from here where it
  // is behind, as after a checkpoint was loaded. 0: not said.
  uint64_t step = 0;
  // What it weighs among the gradients of a synchronous update, such as the number of rows that it
  // is the mean over: from 0, which leaves it out where others weigh anything, to 2^53.
  double weight = 1;
  // For a gradient of some rows: their numbers within the shard; a row may come more than once.
  std::optional<std::vector<int64_t>> rows = {};
  // Which value the gradient was computed from; none: the last one that this client has pulled.
  ShardVersion computed_at = {};
  bool exact = false;  // never compressed: a number that counts something, not a gradient
};
struct ShardPushed {
  PushOutcome outcome = PushOutcome::kApplied;
  uint64_t version = 0;    // of the shard, then; repeated: one that has the gradient
  uint64_t staleness = 0;  // updates between the value that the gradient is from and this one
  uint64_t lost =
      0;  // earlier pushes to this shard that the server no longer has, and newly knows of
};

// A value wanted of a shard.
struct ShardPull {
  std::string shard;
  // Of the shard's spec, else kInvalidArgument: written in place, also by a call that fails later.
  Tensor target;
  // Some rows alone: `target` is [rows, ...].
  std::optional<std::vector<int64_t>> rows = {};
  // What `target` holds already: nothing is sent where it is the present one.
  ShardVersion at_hand = {};
  uint64_t at_least = 0;  // waits for this version
  int part = 0;           // 0: the value; n: slot n
};
struct ShardPulled {
  ShardVersion version;
  bool was_current = false;  // `target` was not written
};

struct UpdateResult {
  std::vector<ShardPushed> pushed;  // in the order of the pushes
  std::vector<ShardPulled> pulled;
};

// A worker's way to one parameter server. Connects by itself, in any order of starting, and again
// after the server was away: a call waits until it is done, for the timeout at most
// (kDeadlineExceeded or kUnavailable, which name the server). A process that has been asked to stop
// (stop_request()) does not wait for a server that is away: that is kCancelled. A push or write
// that is retried is applied once. Errors of the server arrive with their code, and who they say is
// at fault; else peer() is the server: its task, or its address where that is not known.
//
// A shard that this client has made, found, read or written is kNotFound once the server has lost
// it, also where another client has made it anew, until create() of this client finds that one.
//
// Thread-safe. Pushes of a client go one after the other, and so do assign(), assign_rows()
// and add_missing_rows(); other calls side by side. Memory of gradients is read until the call
// returns; after a call that failed, gRPC may hold on to it for a moment, which keeps a Plan from
// using it again.
class ParameterClient {
 public:
  ParameterClient(const Address& server, ParameterClientOptions options,
                  const Environment& environment = process_environment);
  ~ParameterClient();
  ParameterClient(const ParameterClient&) = delete;
  ParameterClient& operator=(const ParameterClient&) = delete;

  uint64_t incarnation() const { return options_.incarnation; }

  // Makes a shard, if it is not there: of several clients, the first one's value counts, and
  // `initial` is called only where it is needed. True where this call has made it.
  // kInvalidArgument where the shard is there and is another, or is moved by an optimizer with
  // other constants, with what differs.
  bool create(const ShardSpec& spec, const std::function<Tensor()>& initial);

  // Applies gradients on the server, then fetches values, in one call. Each push stands for itself:
  // when one is refused, others of the call may have been applied. Versions (at_least) are waited
  // for no longer than `wait`, which is less than what the call may take: then it is
  // kDeadlineExceeded, too.
  UpdateResult update(std::span<const ShardPush> pushes, std::span<const ShardPull> pulls,
                      std::optional<std::chrono::milliseconds> timeout = {},
                      std::chrono::milliseconds wait = std::chrono::milliseconds::max());
  ShardPushed push(const ShardPush& push) { return update({&push, 1}, {}).pushed[0]; }
  ShardPulled pull(const ShardPull& pull) { return update({}, {&pull, 1}).pulled[0]; }

  // Overwrites a shard, or its slot `part`. Gradients from before are then stale.
  void assign(const std::string& shard, const Tensor& value, int part = 0);

  // Of a table with rows on first use: the numbers of the rows in use, ascending; each is a call
  // for some of them, so that rows may come in between.
  std::vector<int64_t> rows_in_use(const std::string& shard);
  // Overwrites rows of such a table, or of its slot `part`: `values` is [rows, ...]. Where `reset`,
  // all others get their initial value first.
  void assign_rows(const std::string& shard, const std::vector<int64_t>& rows, const Tensor& values,
                   int part, bool reset);
  // Makes those of the rows that are not in use, with these values; others stay as they are, and
  // training goes on. Of several callers, the first one's row counts.
  void add_missing_rows(const std::string& shard, const std::vector<int64_t>& rows,
                        const Tensor& values);

  // Says that this worker has completed `steps` steps, and waits until it may start the next one
  // (ConsistencyOptions::max_staleness). Returns what the slowest has completed, by the server's
  // count, in which a worker that was away has done as many as the slowest. kDeadlineExceeded names
  // who is slow.
  int64_t complete_step(int64_t steps, std::optional<std::chrono::milliseconds> timeout = {});
  // Nobody is to wait for this worker any more, until it completes another step, or pushes where
  // training is synchronous. To be called when a training has ended: where another worker begins
  // the next one, this one is waited for again, while it is connected.
  void leave(std::optional<std::chrono::milliseconds> timeout = {});

  // These are for chief:0 or worker:0, else kPermissionDenied. Folders are the server's.
  void snapshot(const std::string& folder);
  int64_t restore(const std::string& folder);  // returns the number of shards
  void shut_down();

  // What the server has done and has; for any task.
  ServerStatistics statistics();

  // Says that this task has done its work; to be called last. A server that is asked to stop when
  // all tasks have said so need not be started again. Where there is no connection just now, or no
  // answer within a second, nothing is said.
  void say_done();

  // From now on pushes carry this mark too, so that work which is done again, perhaps by another
  // task, is applied once: its numbers grow, and what comes with one that is not greater than the
  // last that a shard has is kRepeated. Nothing: they carry none.
  struct Source {
    std::string name;          // lane_name()
    uint64_t incarnation = 0;  // of a start of it; an earlier start is refused
    uint64_t sequence = 0;     // from 1
  };
  void mark_pushes(std::optional<Source> source);

  // All calls under way and all later ones throw kCancelled, until resume().
  void cancel();
  void resume();

 private:
  // Sends `request`, which says all but this.
  void write_rows(parameter_server::proto::Request& request, const std::string& shard,
                  const std::vector<int64_t>& rows, const Tensor& values);

  struct Sequence {
    uint64_t last = 0, acknowledged = 0, reported = 0;
  };
  // Of a shard.
  struct Known {
    ShardVersion pulled = {};  // the last value
    uint64_t birth = 0;        // 0: not known yet
  };
  using Time = std::chrono::steady_clock::time_point;
  using Payload = std::vector<parameter_server::Piece>;

  Time deadline_after(std::optional<std::chrono::milliseconds> timeout) const;
  // A request whose reply is one header.
  parameter_server::proto::Reply ask(parameter_server::proto::Request& request,
                                     const Payload& payload = {},
                                     std::optional<std::chrono::milliseconds> timeout = {});
  bool is_compressed(const ShardPush& push) const;
  void require_values(std::span<const ShardPush> pushes, std::span<const ShardPull> pulls) const;
  // REQUIRES, where there are pushes: push_mutex_ held. `kept` gets what the compressor has of
  // their shards before.
  void write_update(std::span<const ShardPush> pushes, std::span<const ShardPull> pulls,
                    parameter_server::proto::Update& out, Payload& payload,
                    std::map<std::string, Tensor>& kept);
  // REQUIRES: push_mutex_ held.
  void write_push(const ShardPush& push, parameter_server::proto::Push& out, Payload& payload);
  // Pulls these once more, copied by the server.
  void pull_again(std::span<const ShardPull> pulls, const std::vector<size_t>& changed,
                  Time deadline, UpdateResult& result);
  Known known(const std::string& shard);
  // A reply has said the birth of a shard; 0: it has not.
  void learn(const std::string& shard, uint64_t birth);

  const ParameterClientOptions options_;
  std::atomic<int64_t> trainings_ = 0;  // that have ended
  std::atomic<uint64_t> clocks_ = 0;    // requests of the clock that have been made
  const std::unique_ptr<parameter_server::ClientCalls> calls_;

  std::mutex push_mutex_;  // pushes go one after the other
  std::map<std::string, Sequence> sequences_;
  std::optional<Source> source_;
  GradientCompressor compressor_;
  std::mutex write_mutex_;  // and so do other writes
  uint64_t writes_ = 0;
  std::mutex known_mutex_;
  std::map<std::string, Known> known_;
};

}  // namespace cohort
