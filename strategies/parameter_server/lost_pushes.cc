#include "strategies/parameter_server/lost_pushes.h"

#include <algorithm>
#include <mutex>
#include <utility>
#include <vector>

#include "core/base/comma_separated.h"

namespace cohort::parameter_server {
namespace {

// More shards than these are counted in a line, and not named.
constexpr size_t kNamed = 4;

// Of the start of `last`.
uint64_t pushes_since(const Mark& restored, const Mark& last) {
  if (restored.incarnation != last.incarnation) return last.sequence;
  return last.sequence - std::min(last.sequence, restored.sequence);
}

// Of starts in their order.
uint64_t pushes_since(const Mark& restored, const std::vector<Mark>& starts) {
  uint64_t pushes = 0;
  for (auto last = starts.rbegin(); last != starts.rend(); ++last) {
    pushes += pushes_since(restored, *last);
    if (last->incarnation == restored.incarnation) break;
  }
  return pushes;
}

}  // namespace

LostPushes::LostPushes(const ParameterServerOptions& options,
                       std::function<std::shared_ptr<Shard>(const std::string& name)> find)
    : options_(options), find_(std::move(find)) {}

void LostPushes::add(const std::string& task, uint64_t pushes, const std::string& shard) {
  const std::lock_guard lock(unsaid_mutex_);
  count_ += pushes;
  Unsaid& unsaid = unsaid_[task];
  unsaid.pushes += pushes;
  unsaid.shards[shard] += pushes;
}

// "2 shards ("w" 3, "b" 1)"; of many, just how many.
std::string LostPushes::where(const Unsaid& lost) {
  if (lost.shards.size() == 1) return str("shard \"", lost.shards.begin()->first, '"');
  std::string count = str(lost.shards.size(), " shards");
  if (lost.shards.size() > kNamed) return count;
  return str(
      count, " (",
      comma_separated(lost.shards,
                      [](const auto& shard) { return str('"', shard.first, "\" ", shard.second); }),
      ")");
}

void LostPushes::say(const std::string& task) {
  Unsaid lost;
  {
    const std::lock_guard lock(unsaid_mutex_);
    const auto found = unsaid_.find(task);
    if (found == unsaid_.end()) return;
    lost = std::move(found->second);
    unsaid_.erase(found);
  }
  options_.notice(str("parameter server: lost=", lost.pushes, " pushes of ", task, " to ",
                      where(lost), ": they were acknowledged, and are not in the last snapshot"));
}

bool LostPushes::keep_ledger(bool anew) {
  const std::lock_guard lock(mutex_);
  ledger_ = std::make_unique<PushLedger>(options_.snapshot_folder, anew);
  for (const auto& [key, starts] : ledger_->marks()) {
    const auto shard = find_(key.shard);
    if (shard == nullptr) continue;
    const Mark restored = shard->mark_of(key.task);
    if (const uint64_t lost = pushes_since(restored, starts); lost > 0)
      unreturned_.emplace(key, Unreturned{restored, starts.back(), lost});
  }
  return !unreturned_.empty();
}

std::map<PushLedger::Key, std::vector<Mark>> LostPushes::starts() {
  const std::shared_lock lock(mutex_);
  return ledger_ == nullptr ? std::map<PushLedger::Key, std::vector<Mark>>() : ledger_->marks();
}

void LostPushes::write_down_start(const Start& start) {
  write_down("", start.task, {.incarnation = start.incarnation, .sequence = 0});
}

void LostPushes::end_ledger(const Error& error) {
  // What it says will not be the last.
  try {
    ledger_->clear();
  } catch (const Error&) {  // the first error is the one to tell
  }
  ledger_ = nullptr;
  options_.notice(str("parameter server: what is lost of workers that do not come back will not ",
                      "be known: ", error.what()));
}

void LostPushes::write_down(const std::string& shard, const std::string& task, const Mark& mark) {
  if (options_.snapshot_folder.empty()) return;
  const PushLedger::Key key{.shard = shard, .task = task};
  bool has_returned = false;
  std::optional<Error> failure;
  {
    const std::shared_lock lock(mutex_);
    if (ledger_ == nullptr) return;
    has_returned = unreturned_.contains(key);
    try {
      ledger_->write(key, mark);
      if (has_returned) ledger_->keep_only(key, mark.incarnation);
    } catch (const Error& error) {
      failure = error;
    }
  }
  if (has_returned) count_returned(key, mark);
  if (!failure) return;
  const std::lock_guard lock(mutex_);
  if (ledger_ != nullptr) end_ledger(*failure);
}

void LostPushes::count_returned(const PushLedger::Key& key, const Mark& mark) {
  uint64_t lost = 0;
  {
    const std::lock_guard lock(mutex_);
    const auto found = unreturned_.find(key);
    if (found == unreturned_.end()) return;
    const auto& [restored, last, all] = found->second;
    // Of the same start, the push itself has shown what is lost.
    lost = all - (last.incarnation == mark.incarnation ? pushes_since(restored, last) : 0);
    unreturned_.erase(found);
  }
  if (lost > 0) add(key.task, lost, key.shard);
}

void LostPushes::give_up(const std::optional<std::string>& task) {
  std::set<std::string> tasks;
  {
    const std::lock_guard lock(mutex_);
    std::erase_if(unreturned_, [&](const auto& entry) {
      const auto& [key, pushes] = entry;
      if (task && key.task != *task) return false;
      // Else it has just pushed, and this is counted there.
      if (!find_(key.shard)->skip(key.task, pushes.restored, pushes.last)) return false;
      add(key.task, pushes.lost, key.shard);
      tasks.insert(key.task);
      return true;
    });
  }
  for (const std::string& name : tasks) say(name);
}

void LostPushes::end() {
  const std::lock_guard lock(mutex_);
  try {
    if (ledger_ != nullptr) ledger_->clear();
    ledger_ = nullptr;
  } catch (const Error& error) {
    end_ledger(error);
  }
}

}  // namespace cohort::parameter_server
