#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "core/distribute/row_variable.h"
#include "core/optim/update_rule.h"
#include "core/runtime/variable.h"
#include "strategies/parameter_server/replica_parts.h"
#include "strategies/parameter_server/row_slice.h"
#include "strategies/parameter_server/server_session.h"
#include "strategies/parameter_server/server_variable_info.h"
#include "strategies/parameter_server/shard_spec.h"

namespace cohort {

// A variable whose value lives on parameter servers, in shards (tf.distribute's ShardedVariable).
// This object is a process's way to it. Its storage is a copy that the replicas of the process
// share, which ServerFunction brings up to date before a step; a table that is only looked up has
// none.
//
// Outside functions, value(), assign() and so on act on the servers, at once. Adding, and
// scattering with kAdd or kSub, is atomic over all processes for a variable that no optimizer
// moves; all other changes read and write the whole variable, and of two processes the last one's
// counts. What concerns all rows is kUnimplemented where they are made on first use.
//
// A function that no strategy runs, or a plan, brings the whole storage up to date each time that
// it runs, by a request that brings what has changed alone, and assigns what it has written, sums
// too. It is kInvalidArgument where rows are made on first use.
//
// Shards are made on first use, by whoever comes first, who makes the initial value then: of
// another spec it is kInvalidArgument there. Without an initial_value that is to be asked, the
// constructor is. Thread-safe, but for what Variable says of functions that are running.
class ServerVariable final : public Variable, public RowVariable {
 public:
  struct Options {
    VariableOptions variable;
    // Its name among the servers' shards, which has to be its own there; empty: the variable's.
    std::string key;
    std::vector<int> servers;  // of each shard
    // Rows on first use: then `variable.initial_value` is not asked.
    std::optional<RowInitializer> lazy;
    // Where it is not empty, makes the initial value of one shard's rows, for several shards at a
    // time, and `variable.initial_value` is not asked: no process has all of it.
    std::function<Tensor(const RowRange& rows)> initial_rows = {};
    int num_replicas = 1;  // of this process
  };
  ServerVariable(const Options& options, std::shared_ptr<ServerSession> session);
  // One that another process has made: its shards are there. Where it is synchronised on read, each
  // of several replicas of this process has its part of the value.
  ServerVariable(const ServerVariableInfo& info, std::shared_ptr<ServerSession> session,
                 int num_replicas = 1);

  // What other processes need to attach to it. Makes its shards where they are not there.
  ServerVariableInfo info() const { return *make_shards(); }
  // How many rules have taken it over in this process. Does not wait, also while shards are made.
  int num_rules() const { return rules_; }
  // The shards' values in order, each named "NAME/part_i".
  struct Shard {
    std::string name;
    int server = 0;
    RowRange rows;
    Tensor value;
  };
  std::vector<Shard> shards();

  // Some rows, which alone are pulled, also of a table with rows on first use; many of them block
  // after block, between which others may write.
  Tensor slice(const RowSlice& rows) const;
  // One row, without axis 0; a negative number counts from the end. kOutOfRange.
  Tensor row(int64_t number) const;
  // The rows of these numbers, in their order; -1 is a row of zeros. kOutOfRange.
  Tensor lookup(const std::vector<int64_t>& numbers) const { return lookup(numbers, 0); }

  // From now on `rule` moves it. The value stays; gradients from before are not applied. The result
  // has one variable for each slot of the rule, of these names, which act on the servers as this
  // one does. Twice in one process, the second rule counts, with slots of its own. kInvalidArgument
  // for rows on first use with a rule that moves all rows.
  std::vector<std::shared_ptr<Variable>> move_by(const optim::UpdateRule& rule, double weight_decay,
                                                 const std::vector<std::string>& slot_names);

  Tensor storage(int replica) override;
  void begin_read_outside() override;
  void begin_write_outside() override { storage_written(); }
  void end_write_outside() override { store_value(written_value()); }
  int num_replicas() const override { return num_replicas_; }
  bool is_written_by(int replica) const override { return replica == 0 || has_parts(); }
  std::vector<Device> devices() const override { return {Device{}}; }

  const std::shared_ptr<ServerSession>& session() const { return session_; }
  // The server that has its first shard.
  int first_server() const { return servers_.front(); }
  // Whether rows are made on first use.
  bool is_lazy() const { return is_lazy_; }
  // Whether what is pushed is added to it, which takes place at once also where training is
  // synchronous.
  bool takes_sums() const;
  bool has_rows_on_first_use() const override { return is_lazy_; }
  VariableRows rows_in_use() const override { return rows_in_use(0); }
  void assign_rows(const VariableRows& rows) override { assign_rows(rows, 0); }
  // The same for a part: 0 is the value, n slot n.
  VariableRows rows_in_use(int part) const;
  void assign_rows(const VariableRows& rows, int part);
  // A part as one tensor.
  Tensor read_part(int part) const;
  void write_part(int part, const Tensor& value);

  // --- For ServerFunction: calls of ServerSession::update, by server, and what they brought.

  using Calls = std::vector<ServerSession::Call>;
  // Where the results of a variable's part in calls are: by shard, the server and the number of the
  // push or pull there; -1: none.
  using Places = std::vector<int>;

  // The rows of a looked-up table: `rows` ascend; `target` is [rows.size(), ...].
  Places add_pull(Calls& calls, const std::vector<int64_t>& rows, const Tensor& target);
  // All of it, into the storage, where that is not what the servers have.
  Places add_pull(Calls& calls);
  void pulled(const Places& places, const std::vector<UpdateResult>& results, bool into_storage);

  // As ShardPush has them.
  struct PushOptions {
    double learning_rate = 0;
    uint64_t step = 0;
    double weight = 1;
  };
  // A gradient, or what is to be added; by rows where there are indices, of which -1 names none.
  Places add_push(Calls& calls, const Tensor& gradient, const std::optional<Tensor>& indices,
                  const PushOptions& options);
  void pushed(const Places& places, const std::vector<UpdateResult>& results);
  // The storage has been written, and is no version of the servers any more.
  void storage_written();
  // The value that replicas have written to it, to be assigned.
  Tensor written_value();
  bool is_written_by_others() const override { return true; }
  // Whether each replica has memory of its own: what they change is merged as the aggregation says.
  bool has_parts() const { return parts_.has_value(); }

 protected:
  Tensor load_value() const override;
  void store_value(const Tensor& value) override;
  void add_value(const Tensor& delta) override;
  void subtract_value(const Tensor& delta) override;
  void scatter_values(ScatterOp op, const Tensor& indices, const Tensor& updates) override;

 private:
  struct ShardState {
    ShardVersion in_storage;
    ShardVersion last;     // pulled, to wherever
    uint64_t awaited = 0;  // of a synchronous update: the version that has our gradient
  };

  using InfoPtr = std::shared_ptr<const ServerVariableInfo>;

  size_t num_shards() const { return servers_.size(); }
  // Of axis 0; a scalar has one.
  int64_t num_rows() const { return spec().shape.rank() == 0 ? 1 : spec().shape[0]; }
  // Of now: another rule may take the variable over at any time.
  InfoPtr present_info() const;
  bool has_shards() const;
  std::vector<ShardState> states() const;
  // What is there has been assigned, and has none of our gradients to wait for.
  void await_nothing();
  // The copy that is brought up to date, of all parts together.
  Tensor whole_storage();
  // REQUIRES, as the next two: mutex_ held by whoever makes the shards.
  ShardSpec shard_spec(const ServerVariableInfo& info, size_t shard) const;
  // Of a table with rows on first use that another rule moves now: gives a new shard those rows of
  // the one before that it does not have yet. May be done again, and by several processes at the
  // same time.
  void take_over_rows(const ServerVariableInfo& info, size_t shard) const;
  Tensor initial_of(const RowRange& rows, std::once_flag& once, Tensor& whole) const;
  // Returns present_info(), whose shards are there.
  InfoPtr make_shards() const;
  // kUnimplemented, for what `call` would do to all rows, where they are made on first use.
  void require_all_rows(const char* call) const;
  Tensor lookup(const std::vector<int64_t>& numbers, int part) const;
  // Into `target`, rows given in order, each once: in blocks, for a request has a limit.
  void pull_rows(const ServerVariableInfo& info, const std::vector<int64_t>& rows,
                 const Tensor& target, int part) const;
  static ShardPull pull_of(const ServerVariableInfo& info, const ShardState& state, size_t shard,
                           Calls& calls);
  // Pushes outside functions what is to be added.
  void add(const Tensor& delta, const std::optional<Tensor>& indices);

  const std::shared_ptr<ServerSession> session_;
  const int num_replicas_;
  const std::optional<RowInitializer> lazy_;
  const bool is_lazy_;
  const std::vector<int> servers_;  // of each shard
  std::mutex reading_;              // held while the storage is read for a plan outside
  mutable std::mutex mutex_;        // guards what follows; held while shards are made
  InfoPtr info_;
  const std::string key_;                  // without the optimizers
  std::function<Tensor()> initial_value_;  // empty: its shards are there
  std::function<Tensor(const RowRange&)> initial_rows_;
  std::string rows_of_;                // the key of the shards that new ones have their rows from
  std::vector<ServerUpdate> updates_;  // by shard
  std::atomic<int> rules_ = 0;         // changes under the lock alone
  mutable bool made_ = false;
  Tensor storage_;
  std::optional<parameter_server::ReplicaParts> parts_;
  bool parts_are_current_ = false;  // of what is in the storage
  std::vector<ShardState> states_;
};

}  // namespace cohort
