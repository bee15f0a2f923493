#include "strategies/cluster/coordination/barrier_table.h"

#include <limits>

#include "strategies/cluster/coordination/limits.h"
#include "strategies/cluster/parsing.h"

namespace cohort::coordination {
namespace {

// That somebody has not come to; more are a mistake, such as a name with a step number that only
// one task uses, or one task that tries again and again.
constexpr size_t kMaxOpenBarriers = 65536;

}  // namespace

Answers BarrierTable::arrive(Caller caller, const std::string& name,
                             std::chrono::milliseconds timeout, Time now) {
  if (name.empty() || name.size() > kMaxBarrierNameBytes) {
    return {{caller, Error(Code::kInvalidArgument,
                           str("barrier ", quote(name), " has a name of ", name.size(),
                               " bytes; expected 1 to ", kMaxBarrierNameBytes))}};
  }
  if (open_ >= kMaxOpenBarriers && !is_open(name, caller.rank)) {
    return {{caller, Error(Code::kResourceExhausted,
                           str("barrier ", quote(name), ": there are ", open_,
                               " barriers already that not all tasks have come to"))}};
  }
  Name& entry = names_[name];
  const int64_t use = entry.uses[caller.rank]++;
  const auto [found, is_new] = entry.barriers.try_emplace(use);
  if (is_new) ++open_;
  Barrier& barrier = found->second;
  Answers answers = arrive_at(barrier, caller, name, {caller.id, timeout, now + timeout});
  if (static_cast<int>(barrier.seen.size()) == roster_.size()) {
    entry.barriers.erase(use);
    --open_;
  }
  if (entry.barriers.empty()) names_.erase(name);
  return answers;
}

Answers BarrierTable::arrive_at(Barrier& barrier, Caller caller, const std::string& name,
                                Arrival arrival) {
  barrier.seen.insert(caller.rank);
  if (barrier.failure) {
    return {{caller, barrier.failure->with_context("this barrier had failed before")}};
  }
  barrier.waiting.emplace(caller.rank, arrival);
  Answers answers;
  if (static_cast<int>(barrier.waiting.size()) == roster_.size()) {
    for (const auto& [rank, waiting] : barrier.waiting) answers.push_back({{rank, waiting.id}});
    return answers;
  }
  for (const int rank : left_) {
    if (barrier.seen.count(rank)) continue;
    fail(barrier, absent(name, rank), answers);
    return answers;
  }
  return answers;
}

Answers BarrierTable::expire(Time now) {
  Answers answers;
  for (auto& [name, entry] : names_) {
    for (auto& [use, barrier] : entry.barriers) {
      for (const auto& [rank, arrival] : barrier.waiting) {
        if (arrival.deadline > now) continue;
        fail(barrier, late(name, barrier, rank), answers);
        break;
      }
    }
  }
  return answers;
}

Answers BarrierTable::leave(int rank) {
  left_.insert(rank);
  Answers answers;
  for (auto& [name, entry] : names_) {
    for (auto& [use, barrier] : entry.barriers) {
      if (!barrier.failure && !barrier.seen.count(rank)) fail(barrier, absent(name, rank), answers);
    }
  }
  return answers;
}

bool BarrierTable::anybody_waits() const {
  for (const auto& [name, entry] : names_) {
    for (const auto& [use, barrier] : entry.barriers) {
      if (!barrier.waiting.empty()) return true;
    }
  }
  return false;
}

bool BarrierTable::is_open(const std::string& name, int rank) const {
  const auto entry = names_.find(name);
  if (entry == names_.end()) return false;
  const auto uses = entry->second.uses.find(rank);
  return entry->second.barriers.contains(uses == entry->second.uses.end() ? 0 : uses->second);
}

std::vector<int> BarrierTable::missing(const Barrier& barrier) const {
  std::vector<int> ranks;
  for (int rank = 0; rank < roster_.size(); ++rank) {
    if (!barrier.waiting.count(rank)) ranks.push_back(rank);
  }
  return ranks;
}

Error BarrierTable::late(const std::string& name, const Barrier& barrier, int waiter) const {
  const std::vector<int> ranks = missing(barrier);
  return Error(Code::kDeadlineExceeded,
               str("barrier ", quote(name), ": ", roster_.name(waiter), " has waited ",
                   in_words(barrier.waiting.at(waiter).timeout), " for ",
                   roster_.described(ranks, std::numeric_limits<size_t>::max()), "; ",
                   barrier.waiting.size(), " of ", roster_.size(), " tasks have come"),
               ranks.size() == 1 ? roster_.name(ranks[0]) : "");
}

Error BarrierTable::absent(const std::string& name, int rank) const {
  return Error(
      Code::kFailedPrecondition,
      str("barrier ", quote(name), ": ", roster_.name(rank), " has left the job and will not come"),
      roster_.name(rank));
}

void BarrierTable::fail(Barrier& barrier, const Error& error, Answers& answers) {
  for (const auto& [rank, arrival] : barrier.waiting)
    answers.push_back({{rank, arrival.id}, error});
  barrier.waiting.clear();
  barrier.failure = error;
}

}  // namespace cohort::coordination
