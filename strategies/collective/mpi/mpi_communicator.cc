#include "strategies/collective/mpi/mpi_communicator.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <numeric>

#include "core/base/time_limits.h"
#include "core/collective/parts.h"
#include "core/collective/queued_communicator.h"
#include "core/collective/split.h"
#include "strategies/cluster/parsing.h"
#include "strategies/collective/mpi/collectives.h"
#include "strategies/collective/mpi/mpi_process.h"

namespace cohort {
namespace {

using mpi::Clock;
using mpi::Control;
using mpi::Group;
using mpi::Messages;
using mpi::Traffic;

// The id of the part of a group that its `split`-th split gives a color (splitmix64).
uint64_t part_id(uint64_t group, uint64_t split, uint64_t color) {
  uint64_t id = group;
  for (const uint64_t word : {split, color}) {
    id = (id ^ word) + 0x9E3779B97F4A7C15u;
    id = (id ^ id >> 30) * 0xBF58476D1CE4E5B9u;
    id = (id ^ id >> 27) * 0x94D049BB133111EBu;
    id ^= id >> 31;
  }
  return id;
}

class MpiCommunicator final : public QueuedCommunicator {
 public:
  MpiCommunicator(std::shared_ptr<mpi::Transport> transport, uint64_t id, std::vector<int> members,
                  std::vector<std::string> tasks, int rank, Clock::duration limit,
                  StallWarning stall)
      : group_(std::move(transport), id, std::move(members), std::move(tasks), rank),
        limit_(limit),
        stall_(std::move(stall)) {}
  ~MpiCommunicator() override {
    end(Error(Code::kUnavailable, group_.name(rank()) + " has left its group",
              group_.peer(rank())));
    end_queue();
  }

  int rank() const override { return group_.rank(); }
  int size() const override { return group_.size(); }

  std::unique_ptr<Communicator> split(int color, int key) override {
    return parts_.add(split(color, key, group_.tasks(), limit_));
  }
  // With other names for the ranks of this group, and another limit.
  std::unique_ptr<Communicator> split(int color, int key, const std::vector<std::string>& tasks,
                                      Clock::duration limit) {
    GroupPart part = choose_part(*this, color, key);
    const uint64_t id = part_id(group_.id(), ++splits_, static_cast<uint64_t>(color));
    if (part.members.empty()) return nullptr;
    std::vector<std::string> names;
    for (int& member : part.members) {
      const auto at = static_cast<size_t>(member);
      if (!tasks.empty()) names.push_back(tasks[at]);
      member = group_.members()[at];
    }
    return std::make_unique<MpiCommunicator>(group_.shared_transport(), id, std::move(part.members),
                                             std::move(names), part.rank, limit, stall_);
  }

  void abort(const Error& error) override {
    group_.abort(error);
    group_.flush_end();
    parts_.abort(error);
  }

 private:
  Error end(const Error& error) {
    Error first = group_.end(error);
    group_.flush_end();
    return first;
  }

  void run_now(const Call& call) override {
    const uint64_t number = calls_++;
    Traffic traffic(group_, call, number, limit_, stall_);
    try {
      do_together(call, number, traffic);
    } catch (const Error& error) {
      throw group_.give_up(error, number);
    }
  }

  // Tells the others of the call and hears what they make; then they do it, or all refuse.
  void do_together(const Call& call, uint64_t number, Traffic& traffic) {
    const auto mistake = find_mistake(call, rank(), size());
    const Fingerprint own = fingerprint(call, number);
    std::vector<Control> statements(static_cast<size_t>(size()));
    for (int r = 0; r < size(); ++r) {
      Control& statement = statements[static_cast<size_t>(r)];
      statement.words[0] = own.sequence;
      statement.words[1] = own.content;
      statement.words[2] = mistake.has_value();
      if (!mistake && r != rank()) statement.payload = mpi::attachment(call, rank(), r);
    }
    std::vector<Control> heard = traffic.join(statements);
    heard[static_cast<size_t>(rank())] = statements[static_cast<size_t>(rank())];
    const auto begin = Clock::now();
    refuse_different(call, heard, traffic);
    refuse_mistakes(mistake, heard, traffic);
    mpi::carry_out(call, traffic, heard);
    traffic.finish();
    observe(call, begin);
  }

  // All ranks have heard the same, and find the same.
  void refuse_different(const Call& call, const std::vector<Control>& heard, Traffic& traffic) {
    const auto same_as_first = [&](const Control& other) {
      return other.words[0] == heard[0].words[0] && other.words[1] == heard[0].words[1];
    };
    const auto odd = std::find_if_not(heard.begin(), heard.end(), same_as_first);
    if (odd == heard.end()) return;
    const int other = static_cast<int>(odd - heard.begin());
    if (rank() == 0 || rank() == other) traffic.tell(describe(call));
    const std::string first = rank() == 0 ? describe(call) : traffic.hear(0);
    throw mismatch(traffic.collective(), 0, first, other,
                   rank() == other ? describe(call) : traffic.hear(other));
  }

  void refuse_mistakes(const std::optional<Error>& own, const std::vector<Control>& heard,
                       Traffic& traffic) {
    const auto mistaken = std::find_if(heard.begin(), heard.end(),
                                       [](const Control& control) { return control.words[2]; });
    if (mistaken == heard.end()) return;
    const int who = static_cast<int>(mistaken - heard.begin());
    if (rank() == who) {
      traffic.tell(own->message());
      traffic.finish();
      throw *own;
    }
    throw Error(Code::kInvalidArgument, traffic.hear(who));
  }

  int64_t post(const SendCall& call) override { return post_message(call); }
  int64_t post(const ReceiveCall& call) override { return post_message(call); }
  template <typename MessageCall>
  int64_t post_message(const MessageCall& call) {
    const auto lock = group_.transport().lock();
    if (group_.has_ended()) throw group_.error();
    return group_.messages().post(call);
  }

  Received wait_for_message(int64_t id) override {
    Messages& messages = group_.messages();
    const auto ready = [&] {
      if (!is_over(id)) return false;
      if (messages.state(id) == Messages::State::kEnded) return true;
      messages.forget(id);
      throw group_.error();
    };
    const auto begin = Clock::now();
    const bool may_warn = stall_.after.count() > 0 && stall_.after < limit_;
    if (may_warn && !group_.transport().poll_until(begin + stall_.after, ready))
      warn_of_message(id);
    if (!group_.transport().poll_until(begin + limit_, ready)) give_up_message(id);
    const auto lock = group_.transport().lock();
    return messages.take(id);
  }

  bool is_message_done(int64_t id) override {
    return group_.transport().poll_until(Clock::now(), [&] { return is_over(id); });
  }

  // Whether there is nothing to wait for any more. Under the transport's lock.
  bool is_over(int64_t id) {
    const Messages::State state = group_.messages().state(id);
    if (state == Messages::State::kEnded) return true;
    if (!group_.has_ended()) return false;
    return state != Messages::State::kMoving || group_.patience_is_over();
  }

  void warn_of_message(int64_t id) {
    std::string call;
    int peer = kAnyRank;
    {
      const auto lock = group_.transport().lock();
      const Messages& messages = group_.messages();
      if (messages.state(id) != Messages::State::kPosted) return;
      call = messages.call(id);
      peer = messages.peer(id);
    }
    if (peer != kAnyRank) stall_.say(group_.name(rank()), call, group_.name(peer));
  }

  [[noreturn]] void give_up_message(int64_t id) {
    std::string what, peer;
    {
      const auto lock = group_.transport().lock();
      what = group_.messages().describe(id);
      if (const int rank = group_.messages().peer(id); rank != kAnyRank) peer = group_.peer(rank);
      group_.messages().forget(id);
    }
    throw end(Error(Code::kDeadlineExceeded,
                    str(group_.name(rank()), " waits for ", what, ", for longer than ",
                        std::chrono::duration<double>(limit_).count(), " s"),
                    peer));
  }

  Group group_;
  const Clock::duration limit_;
  const StallWarning stall_;
  uint64_t calls_ = 0;  // of run_now, one at a time
  uint64_t splits_ = 0;
  Parts parts_;
};

}  // namespace

std::unique_ptr<Communicator> make_mpi_communicator(const MpiOptions& options) {
  if (!(options.time_limit_seconds > 0) || !std::isfinite(options.time_limit_seconds))
    invalid("MpiOptions::time_limit_seconds is ", options.time_limit_seconds,
            "; it must be greater than 0 and finite");
  const auto limit = clamped_seconds(options.time_limit_seconds);
  static std::atomic<uint64_t> made = 0;
  auto transport = mpi::process_transport(limit);
  std::vector<int> members(static_cast<size_t>(transport->size()));
  std::iota(members.begin(), members.end(), 0);
  const int rank = transport->rank();
  return std::make_unique<MpiCommunicator>(std::move(transport), part_id(0, ++made, 0),
                                           std::move(members), std::vector<std::string>(), rank,
                                           limit, options.stall);
}

std::unique_ptr<Communicator> reorder_mpi_communicator(Communicator& whole, int key,
                                                       const std::string& task,
                                                       double time_limit_seconds) {
  constexpr size_t kLongest = 256;
  struct Task {
    char name[kLongest] = {};
  } own;
  task.copy(own.name, kLongest - 1);
  std::vector<std::string> tasks;
  if (!task.empty())
    for (const Task& told : tell_all(whole, "the names of tasks", own))
      tasks.emplace_back(told.name);
  return dynamic_cast<MpiCommunicator&>(whole).split(0, key, tasks,
                                                     clamped_seconds(time_limit_seconds));
}

bool started_by_mpi(const Environment& environment) {
  return environment("OMPI_COMM_WORLD_SIZE").has_value() ||
         environment("PMIX_NAMESPACE").has_value();
}

std::optional<int> mpi_world_size(const Environment& environment) {
  if (!started_by_mpi(environment)) return std::nullopt;
  constexpr IntegerRange kAny{1, std::numeric_limits<int>::max()};
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS"}) {
    const auto size = config::optional_integer(environment, name, kAny, "2");
    if (!size) continue;
    try {
      mpi::library();
      return size;
    } catch (const Error&) {  // is not installed here
      return std::nullopt;
    }
  }
  return std::nullopt;
}

}  // namespace cohort
