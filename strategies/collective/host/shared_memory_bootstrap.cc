#include "strategies/collective/host/shared_memory_bootstrap.h"

#include <sstream>

#include "core/base/time_limits.h"
#include "core/collective/split.h"
#include "strategies/collective/host/gathered_values.h"

namespace cohort {
namespace {

void check(const SharedMemoryOptions& o) {
  if (o.name.empty()) invalid("a group of processes needs a name");
  if (o.processes < 1 || o.process < 0 || o.process >= o.processes)
    invalid("process ", o.process, " of ", o.processes, " cannot be; allowed are 0 to ",
            o.processes - 1);
  if (!o.tasks.empty() && o.tasks.size() != static_cast<size_t>(o.processes))
    invalid("SharedMemoryOptions::tasks names ", o.tasks.size(), " of ", o.processes, " processes");
  if (o.ranks_per_process < 1 || o.ranks_per_process > kMaxHostRanks / o.processes)
    invalid(o.processes, " processes of ", o.ranks_per_process,
            " ranks each cannot form a group on one host; allowed are 1 to ", kMaxHostRanks,
            " ranks");
}

// The joining of one process.
class Joining {
 public:
  Joining(KeyValueStore& store, const SharedMemoryOptions& options)
      : options_(options),
        values_(store, options.name, options.process, options.processes, options.join_limit,
                options.tasks) {}

  std::shared_ptr<HostGroup> join() {
    const ProcessIdentity own = this_process();
    const auto processes =
        parse_processes(values_.gather("process", str(own.pid, " ", own.start_time)));
    std::shared_ptr<HostGroup> group;
    std::string outcome = kFine;
    try {
      group = std::make_shared<HostGroup>(share_control(processes), members(processes), limit(),
                                          options_.stall);
    } catch (const Error& error) {
      outcome = str(static_cast<int>(error.code()), " ", error.message());
    }
    check_outcomes(values_.gather("joined", outcome));
    group->control.region().close_descriptor();
    values_.forget({"process", "joined"}, {kControl});
    return group;
  }

 private:
  static constexpr const char* kFine = "0";
  static constexpr const char* kControl = "control";

  std::optional<std::chrono::milliseconds> limit() const {
    if (!options_.limit) return std::nullopt;
    return clamped(*options_.limit);
  }

  std::vector<ProcessIdentity> parse_processes(const std::vector<std::string>& texts) const {
    std::vector<ProcessIdentity> processes;
    for (const std::string& text : texts) {
      std::istringstream in(text);
      ProcessIdentity process;
      if (!(in >> process.pid >> process.start_time) || process.pid < 1)
        fail(Code::kDataLoss, "process ", processes.size(), " of group \"", options_.name,
             "\" says \"", text.substr(0, 100), "\" where its pid should be");
      processes.push_back(process);
    }
    return processes;
  }

  // Process 0 makes it and the others open it.
  ControlBlock share_control(const std::vector<ProcessIdentity>& processes) {
    const int ranks = options_.processes * options_.ranks_per_process;
    if (options_.process != 0) {
      std::istringstream in(values_.get(kControl));
      int descriptor = -1;
      if (!(in >> descriptor) || descriptor < 0)
        fail(Code::kUnavailable, "process 0 has no shared memory to offer");
      return ControlBlock::open(processes[0], descriptor, ranks);
    }
    try {
      ControlBlock control = ControlBlock::create(ranks);
      values_.set(kControl, str(control.region().descriptor()));
      return control;
    } catch (const Error&) {
      values_.set(kControl, "none");
      throw;
    }
  }

  std::vector<HostMember> members(const std::vector<ProcessIdentity>& processes) const {
    std::vector<HostMember> ranks;
    for (int p = 0; p < options_.processes; ++p) {
      const auto at = static_cast<size_t>(p);
      ranks.insert(ranks.end(), static_cast<size_t>(options_.ranks_per_process),
                   {processes[at], p, options_.tasks.empty() ? "" : options_.tasks[at]});
    }
    return ranks;
  }

  void check_outcomes(const std::vector<std::string>& outcomes) const {
    for (size_t p = 0; p < outcomes.size(); ++p) {
      if (outcomes[p] == kFine) continue;
      std::istringstream in(outcomes[p]);
      int code = 0;
      std::string message;
      if (in >> code) std::getline(in >> std::ws, message);
      throw Error(code_of(code), str("process ", p, " of group \"", options_.name,
                                     "\" cannot share memory: ", message));
    }
  }

  const SharedMemoryOptions& options_;
  GatheredValues values_;
};

}  // namespace

std::shared_ptr<HostGroup> join_host_group(KeyValueStore& store,
                                           const SharedMemoryOptions& options) {
  check(options);
  return Joining(store, options).join();
}

HostPart split_host_group(Communicator& communicator, const HostGroup& whole, int color, int key) {
  const GroupPart chosen = choose_part(communicator, color, key);
  const auto& members = chosen.members;
  HostPart part{nullptr, chosen.rank};
  const auto size = static_cast<int>(members.size());
  const bool first = size > 0 && chosen.rank == 0;
  std::optional<ControlBlock> control;
  std::optional<Error> error;
  const auto attempt = [&](auto&& step) {
    try {
      step();
    } catch (const Error& e) {
      error = e;
    }
  };
  if (first) attempt([&] { control = ControlBlock::create(size); });
  const auto descriptors = tell_all(communicator, "the memory of a split",
                                    control ? control->region().descriptor() : -1);
  if (!members.empty() && !error)
    attempt([&] {
      std::vector<HostMember> ranks;
      for (const int r : members) ranks.push_back(whole.members[static_cast<size_t>(r)]);
      if (!first)
        control = ControlBlock::open(ranks[0].process, descriptors[static_cast<size_t>(members[0])],
                                     size);
      part.group =
          std::make_shared<HostGroup>(std::move(*control), ranks, whole.limit, whole.stall);
    });
  const auto codes =
      tell_all(communicator, "the outcome of a split", error ? static_cast<int>(error->code()) : 0);
  if (error) throw *error;
  for (size_t r = 0; r < codes.size(); ++r)
    if (codes[r] != 0)
      fail(code_of(codes[r]), "rank ", r, " (pid ", whole.peers.pids[r],
           ") could not join its part of the group");
  if (part.group) part.group->control.region().close_descriptor();
  return part;
}

}  // namespace cohort
