#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "core/runtime/plan.h"
#include "core/tensor/tensor.h"
#include "strategies/parameter_server/buffer_cache.h"
#include "strategies/parameter_server/change.h"
#include "strategies/parameter_server/clock_table.h"
#include "strategies/parameter_server/consistency.h"
#include "strategies/parameter_server/fair_lock.h"
#include "strategies/parameter_server/memory_budget.h"
#include "strategies/parameter_server/roster.h"
#include "strategies/parameter_server/row_gradient.h"
#include "strategies/parameter_server/row_table.h"
#include "strategies/parameter_server/shard_spec.h"
#include "strategies/parameter_server/update_function.h"
#include "strategies/parameter_server/update_round.h"
#include "strategies/parameter_server/update_team.h"
#include "strategies/parameter_server/value_memory.h"
#include "strategies/parameter_server/versions.h"

namespace cohort::parameter_server {

// A gradient with all that decides what becomes of it.
struct IncomingPush {
  std::string task;
  Mark mark;
  std::string source;  // where it is not empty: a push of `source_mark` too, as in the protocol
  Mark source_mark;
  // The starts that the marks are of. Null, as from a test: nobody has taken their place.
  std::shared_ptr<const Start> start, source_start;
  uint64_t acknowledged = 0, reported = 0;  // as in the protocol's Push
  ShardVersion computed_at;
  double learning_rate = 0;
  uint64_t step = 0;  // as in the protocol's Push
  double weight = 1;  // likewise
  Tensor gradient;    // of the shard, or of `rows`; may be written over
  std::optional<std::vector<int64_t>> rows;
};

// What a push did.
struct PushResult {
  PushOutcome outcome = PushOutcome::kApplied;
  uint64_t version = 0;  // now; repeated: that of the update, where it waits for others still
  uint64_t staleness = 0;
  uint64_t lost = 0;   // pushes of this task that were acknowledged before and are gone
  bool again = false;  // this very push came before, and told that then
  // Synchronous: of the time of the last updates, to all of which this task has contributed last,
  // the part in which all others had contributed. Said once for several of them, else 0.
  double awaited_share = 0;
};

// A shard's value as it was at one moment.
struct ShardValue {
  Tensor value;  // shared: not to be written
  uint64_t version = 0;
};

// A shard's own value, which others may copy: whole only where its guard has not moved on from
// `sequence` after that.
struct LiveValue {
  Tensor value;
  uint64_t sequence = 0;
  uint64_t version = 0;
};

// All of a shard, to be written to disk.
struct ShardState {
  ShardSpec spec;
  uint64_t birth = 0;  // as Shard::birth()
  uint64_t version = 0;
  uint64_t updates = 0;  // the number of the last one, for the optimizer's rule
  Marks marks;
  std::vector<Tensor> parts;                    // the value, then the slots
  std::optional<std::vector<int64_t>> row_ids;  // of a table: whose rows the parts have
};

// A shard on its server: values, slots, the update that moves them, and the marks that make it
// exactly once. Thread-safe: one lock of its own, so that no call sees or leaves half an update;
// those who read share it.
class Shard {
 public:
  struct Environment {
    uint64_t epoch = 0;  // of this start of the server
    ConsistencyOptions consistency = {};
    // Of synchronous training: as ClockTable::awaited(), now. By itself, a shard waits for all.
    std::function<int(const ClockTable::HasCome& has_come)> awaited =
        [](const ClockTable::HasCome&) { return 1; };
    BufferCache* buffers = nullptr;
    ValueMemory* values = nullptr;   // for the value; null: in memory of its own
    MemoryBudget* budget = nullptr;  // for value and slots; null: nobody counts
    UpdateTeam* team = nullptr;      // for dense updates, where the shard is large; null: nobody
    // Is told of each change before it is made; where it throws, nothing changes. Null: nobody is.
    std::function<void(const Change& change)> record = nullptr;
  };
  // `spec` may be hostile: kInvalidArgument and kResourceExhausted, the latter also where the
  // budget is used up. `initial` is the value; a table of rows has none.
  Shard(ShardSpec spec, Tensor initial, const Environment& environment, uint64_t birth = 0);
  // From what state() returned.
  Shard(ShardState state, const Environment& environment);

  const ShardSpec& spec() const { return spec_; }
  // A random number of its making, by which it is told from another shard of its name; 0: not
  // known, as of one from a snapshot of before there were such numbers.
  uint64_t birth() const { return birth_; }
  // Bytes of value and slots now.
  size_t bytes() const;
  int64_t rows_in_use() const;

  // kInvalidArgument unless a push of this form can be applied here: dense, or that many rows.
  void check_push(const std::optional<std::vector<int64_t>>& rows) const;
  // Whether push() leaves gradients as they are, looks at them once, and no longer needs them when
  // it returns.
  bool only_reads_gradients() const {
    return !makes_rounds_ && !compensates_ && !environment_.record;
  }
  // Whether a gradient waits for those of others: of synchronous training, where an optimizer moves
  // the shard.
  bool makes_rounds() const { return makes_rounds_; }
  // kFailedPrecondition where a later start of a task, or of the source, has been seen: it may have
  // pushed already, and the marks know only the last start.
  PushResult push(IncomingPush push);
  // Of synchronous training: makes the update that nobody is waited for any more, where there is
  // one. Whether it has.
  bool settle();
  // Who has contributed to the next update.
  std::set<std::string> contributors() const;
  // How many gradients have been dropped because the shard was overwritten before their update.
  uint64_t dropped() const;
  // When the first of them did; nothing where there is none.
  std::optional<UpdateRound::Time> round_began() const;

  // The value. It is copied once for each version, whoever asks. `task` is remembered to have it.
  ShardValue pull(const std::string& task);
  // The same where the caller copies for itself; nothing where it cannot, or would have to be
  // remembered.
  std::optional<LiveValue> live() const;
  // The same for any part, copied into `target`.
  uint64_t pull_into(int part, const std::string& task, void* target);
  // Does not wait.
  uint64_t version() const { return version_; }
  // Part 0 is the value, others the slots. kInvalidArgument for a table of rows, whose parts have
  // no end.
  Tensor part(int part) const;
  // Writes the rows named into `target`, one after the other. Rows of a table that nobody has
  // pushed to have their initial value. kOutOfRange.
  uint64_t pull_rows(int part, std::span<const int64_t> rows, char* target) const;
  // For a task that has looked rows up: it has no value of one version, for which its gradients
  // could be compensated.
  void forget_pulled(const std::string& task);
  // Who writes, and which of the task's writes it is.
  struct Writer {
    std::string task;
    Mark mark;
    std::shared_ptr<const Start> start = {};  // as IncomingPush::start
  };
  // Overwrites a part; rounds that have begun start anew. A slot's is that of another training:
  // updates are counted from what the next push says. Nothing changes where this write, or a later
  // one of the task, has been made before.
  uint64_t assign(const Writer& writer, int part, const Tensor& value);
  // Of a table with rows on first use: the numbers of the first `most` rows in use after `after`.
  std::vector<int64_t> rows_after(int64_t after, size_t most) const;
  // Overwrites rows of a part of such a table; where `reset`, after all others have got their
  // initial value. As assign(); kOutOfRange, kResourceExhausted.
  uint64_t assign_rows(const Writer& writer, int part, std::span<const int64_t> rows,
                       const char* values, bool reset);
  // Makes those of the rows of such a table that are not in use, with these values; the others stay
  // as they are. No gradient is late for it, and rounds go on: the version stays. Once for each
  // write of a task, and errors, as assign_rows().
  uint64_t add_missing_rows(const Writer& writer, std::span<const int64_t> rows,
                            const char* values);
  // kInvalidArgument unless it is one.
  void require_table() const;
  Marks marks() const;
  // The last push of a task.
  Mark mark_of(const std::string& task) const;
  // Whether this push of a task, or a later one of the same start, has come before.
  bool has_come(const std::string& task, const Mark& mark) const;
  // Where that is still `from`, it is `to` from now on: what is between will never come.
  bool skip(const std::string& task, const Mark& from, const Mark& to);
  // Makes a change that was recorded, at the version that it is of. It may be hostile:
  // kInvalidArgument, kOutOfRange.
  void replay(const Change& change);
  // Of a table with rows on first use: takes the memory for so many rows, so that restore() does
  // not fail for want of it; drop_room() gives back what is not in use. Others need none.
  // kResourceExhausted as assign_rows(); then nothing changes.
  void make_room(int64_t rows);
  void drop_room();
  // Overwrites all parts and the version, and keeps the birth; the spec's geometry must be this
  // shard's. As assign_rows() where a table cannot have so many rows; then nothing changes.
  void restore(ShardState state);
  ShardState state() const;
  // Whether an optimizer has moved the value from finite numbers, which it had when it was made or
  // restored, or in a state that was looked at before, to others, which it has in this state of the
  // shard.
  bool has_diverged(const ShardState& state);

 private:
  // Without values.
  Shard(ShardSpec spec, uint64_t birth, const Environment& environment);

  void compile();
  // Of all parts, which are not those of a table.
  void take_memory();
  void begin_with(std::vector<Tensor> parts);
  void require_rows(std::span<const int64_t> rows) const;
  int require_part(int part) const;
  // The number of a source's last push in one of its starts; 0: none.
  uint64_t last_of(const std::string& source, uint64_t incarnation) const;
  bool is_new(const std::string& source, const Mark& mark) const;
  // Comes before the change, and after all of it that may fail.
  template <typename What>
  void record(const Marks& marks, const What& what) const {
    if (environment_.record)
      environment_.record({.shard = spec_.name, .version = version_, .marks = marks, .what = what});
  }
  void set_marks(Marks marks) noexcept;
  // Of a push that changes nothing else.
  void mark_only(Marks marks);
  // Whether the write is still to be made. kFailedPrecondition where it is of a start that is over.
  bool is_due(const Writer& writer) const;
  // Of a write that is: it counts as made.
  template <typename What>
  void begin_write(const Writer& writer, const What& what);
  // Of a table with rows on first use: what may fail comes before anything changes. Those that were
  // not there.
  std::vector<int64_t> make_rows(const AppliedGradient& gradient);
  // Calls `f`, which comes before a change; where it throws, the rows `made` for that are
  // forgotten.
  template <typename F>
  void or_forget(std::span<const int64_t> made, const F& f) {
    try {
      f();
    } catch (...) {
      if (table_) table_->forget(made);
      throw;
    }
  }
  // Of a push that has been applied, or waits for its update.
  PushResult repeated(const IncomingPush& push) const;
  PushResult count(IncomingPush& push, PushResult result);
  bool round_is_complete() const;
  // What has come for it was computed from a value that is no more.
  void drop_round();
  // With the gradient of `last`, where it is not null. Where it throws, the round is as before.
  void finish_round(IncomingPush* last);
  void compensate(IncomingPush& push);
  // The update itself, by rows that are ascending.
  void apply(const AppliedGradient& gradient);
  void overwrite(const AssignedPart& assigned);
  // The rows `made` are in use only since.
  void overwrite(const AssignedRows& assigned, std::span<const int64_t> made);
  uint64_t write(const Writer& writer, const AssignedRows& assigned);
  void require_value(const Tensor& value) const;
  void apply_rows(std::span<const int64_t> rows, const Tensor& values, double learning_rate);
  void run(Plan& plan, const Tensor& gradient, double learning_rate);
  // Calls `work` with the number of threads that make dense updates, on the first of these: where
  // the shard is small, this one.
  void on_team(const std::function<void(int threads)>& work) const;
  void read_row(int part, int64_t row, char* target) const;
  Tensor storage(int part) const;

  const ShardSpec spec_;
  const uint64_t birth_;
  const Environment environment_;
  const bool makes_rounds_;
  const bool compensates_;  // the delay of gradients
  UpdateTeam* const team_;  // null where this is small
  BudgetShare memory_;      // of value and slots; a table has its own
  mutable FairLock mutex_;
  std::atomic<uint64_t> version_ = 1;  // changes under the lock alone
  std::atomic<bool> was_finite_ = true;
  uint64_t updates_ = 0;
  Marks marks_;
  std::vector<std::shared_ptr<Variable>> parts_;  // the value, then the slots; none of a table
  ValueGuard* guard_ = nullptr;                   // of the value, if others can map that
  std::optional<RowTable> table_;
  std::unique_ptr<Plan> plan_;
  // The update by rows works on copies of a block of them.
  std::vector<std::shared_ptr<Variable>> block_parts_;
  Tensor block_gradient_;
  std::unique_ptr<Plan> row_plan_;
  std::vector<Tensor> feeds_, outputs_;
  UpdateRound round_;  // of synchronous training
  uint64_t dropped_ = 0;
  LastContributor last_contributor_;
  // By task: what the last push that has shown a loss has shown. Its answer may be lost, too.
  struct Loss {
    Mark mark;
    uint64_t pushes = 0;
  };
  std::map<std::string, Loss> losses_;
  ShardValue published_;
  std::map<std::string, ShardValue> pulled_;  // by task, for delay compensation
};

}  // namespace cohort::parameter_server
