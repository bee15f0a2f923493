#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "core/optim/update_rule.h"
#include "core/runtime/variable.h"
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
// counts. A function that is called by itself sees the storage as it is.
//
// Shards are made on first use, by whoever comes first. Thread-safe, but for what Variable says of
// functions that are running.
class ServerVariable final : public Variable {
 public:
  struct Options {
    VariableOptions variable;
    // Its name among the servers' shards, which has to be its own there; empty: the variable's.
    std::string key;
    std::vector<int> servers;  // of each shard
    // Rows on first use: then `variable.initial_value` is not asked.
    std::optional<RowInitializer> lazy;
    int num_replicas = 1;  // of this process
  };
  ServerVariable(const Options& options, std::shared_ptr<ServerSession> session);
  // One that another process has made: its shards are there.
  ServerVariable(const ServerVariableInfo& info, std::shared_ptr<ServerSession> session);

  // What other processes need to attach to it. Makes its shards where they are not there.
  const ServerVariableInfo& info();
  // The shards' values in order, each named "NAME/part_i".
  struct Shard {
    std::string name;
    int server = 0;
    RowRange rows;
    Tensor value;
  };
  std::vector<Shard> shards();

  // From now on `rule` moves it. The value stays; gradients from before are not applied. The result
  // has one variable for each slot of the rule, of these names, which act on the servers as this
  // one does. Twice in one process, the second rule counts, with slots of its own. kInvalidArgument
  // for rows on first use with a rule that moves all rows.
  std::vector<std::shared_ptr<Variable>> move_by(const optim::UpdateRule& rule, double weight_decay,
                                                 const std::vector<std::string>& slot_names);

  using Variable::assign;
  using Variable::assign_add;
  using Variable::assign_sub;
  using Variable::scatter;
  Tensor value() const override;
  void assign(const Tensor& value) override;
  void assign_add(const Tensor& delta) override;
  void assign_sub(const Tensor& delta) override;
  void scatter(ScatterOp op, const Tensor& indices, const Tensor& updates) override;
  Tensor storage(int replica) override;
  int num_replicas() const override { return num_replicas_; }
  bool is_written_by(int replica) const override { return replica == 0; }
  std::vector<Device> devices() const override { return {Device{}}; }

  // Whether rows are made on first use.
  bool is_lazy() const { return info_.lazy; }
  // Whether what is pushed is added to it. Synchronous servers would wait for all workers to add
  // something.
  bool takes_sums() const;
  // A part as one tensor: 0 is the value, n slot n.
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

  // A gradient, or what is to be added; by rows where there are indices, of which -1 names none.
  Places add_push(Calls& calls, const Tensor& gradient, const std::optional<Tensor>& indices,
                  double learning_rate);
  void pushed(const Places& places, const std::vector<UpdateResult>& results);
  // The storage has been written, and is no version of the servers any more.
  void storage_written();

 private:
  struct ShardState {
    ShardVersion in_storage;
    ShardVersion last;     // pulled, to wherever
    uint64_t awaited = 0;  // of a synchronous update: the version that has our gradient
  };

  size_t num_shards() const { return info_.num_shards(); }
  ShardSpec shard_spec(size_t shard) const;
  void make_shards() const;
  ShardPull pull_of(size_t shard, Calls& calls) const;
  // Pushes outside functions what is to be added.
  void add(const Tensor& delta, const std::optional<Tensor>& indices);
  const std::shared_ptr<ServerSession> session_;
  const int num_replicas_;
  const std::optional<RowInitializer> lazy_;
  mutable std::mutex mutex_;  // guards what follows; held while shards are made
  ServerVariableInfo info_;
  const std::string key_;                  // without the optimizers
  std::function<Tensor()> initial_value_;  // empty: its shards are there
  std::vector<ServerUpdate> updates_;      // by shard
  int rules_ = 0;
  mutable bool made_ = false;
  Tensor storage_;
  std::vector<ShardState> states_;
};

}  // namespace cohort
