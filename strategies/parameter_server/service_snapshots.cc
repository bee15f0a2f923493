// Of a service, what it writes to disk and comes back from: snapshots, and the log between them.
#include <algorithm>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/base/comma_separated.h"
#include "core/base/error.h"
#include "strategies/parameter_server/reshard.h"
#include "strategies/parameter_server/same_shard.h"
#include "strategies/parameter_server/service.h"
#include "strategies/parameter_server/snapshot.h"

namespace cohort::parameter_server {
namespace {

// A shard that is there, and what it gets of a snapshot.
struct Restoring {
  std::shared_ptr<Shard> shard;
  int64_t rows = 0;  // that it will have in use
  std::function<ShardState()> load;
};

// Those of `present` that a snapshot has.
std::vector<Restoring> find_in(const std::vector<SavedShard>& saved,
                               const std::vector<std::shared_ptr<Shard>>& present) {
  std::vector<Restoring> found;
  for (const auto& shard : present) {
    const ShardSpec& spec = shard->spec();
    const auto same = std::ranges::find_if(saved, [&](const SavedShard& one) {
      const ShardSpec& other = one.about.spec;
      return other.name == spec.name && other.begin == spec.begin && other.rows == spec.rows;
    });
    if (same != saved.end()) {
      require_same_contents(spec, same->about.spec);
      found.push_back({shard, same->rows, same->load});
    } else if (auto assembled = assemble(spec, saved)) {
      found.push_back({shard, assembled->rows, std::move(assembled->load)});
    }
  }
  return found;
}

// Shards made of a snapshot beside those that are there would be used by nobody.
[[noreturn]] void refuse_other_names(const std::string& folder,
                                     const std::vector<SavedShard>& saved,
                                     const std::vector<std::shared_ptr<Shard>>& present) {
  constexpr size_t kNamesShown = 3;
  const auto there = [](const SavedShard& one) { return str('"', one.about.spec.name, '"'); };
  const auto here = [](const std::shared_ptr<Shard>& one) {
    return str('"', one->spec().name, '"');
  };
  fail(Code::kNotFound, "the snapshot in ", folder, " has none of this server's shards: it has ",
       comma_separated(saved, there, kNamesShown), ", and the server ",
       comma_separated(present, here, kNamesShown));
}

// Room that shards have for more rows than are in use, while this is alive.
class Rooms {
 public:
  Rooms() = default;
  ~Rooms() {
    for (const auto& shard : shards_) shard->drop_room();
  }
  Rooms(const Rooms&) = delete;
  Rooms& operator=(const Rooms&) = delete;

  void make(const std::shared_ptr<Shard>& shard, int64_t rows) {
    shards_.push_back(shard);
    shard->make_room(rows);
  }

 private:
  std::vector<std::shared_ptr<Shard>> shards_;
};

void require_folder(const std::string& folder) {
  if (folder.empty()) invalid("a snapshot is in a folder, and none was named");
}

}  // namespace

void Service::snapshot(const std::string& folder) {
  require_folder(folder);
  const std::lock_guard lock(snapshot_mutex_);
  try {
    write_snapshot(folder);
  } catch (const std::exception&) {
    ++snapshots_failed_;
    throw;
  }
}

void Service::write_snapshot(const std::string& folder) {
  const bool ends_log = log_ != nullptr && folder == options_.snapshot_folder;
  // What the files before it say, the shards have done.
  const int64_t goes_on = ends_log ? log_->begin_file() : 0;
  SnapshotWriter writer(folder, {.num_servers = options_.num_servers, .log_goes_on = goes_on});
  for (const auto& shard : shards()) {
    const ShardState state = shard->state();
    if (shard->has_diverged(state)) refuse_diverged(shard->spec());
    writer.add(state);
  }
  writer.commit();
  if (ends_log) log_->saved_before(goes_on);
}

void Service::refuse_diverged(const ShardSpec& spec) const {
  const std::string& folder = options_.snapshot_folder;
  const std::string advice =
      log_ == nullptr ? ""
                      : str("; its log has that, too: to go on from the snapshot, remove ", folder,
                            "/changes-* before the server is started again");
  fail(Code::kOutOfRange, "shard \"", spec.name, "\" of variable \"", spec.variable,
       "\" has diverged: there are NaN or infinite numbers in it, where finite ones were before",
       advice);
}

void Service::require_as_many_servers() const {
  const std::string& folder = options_.snapshot_folder;
  const int written = facts_of_snapshot(folder).num_servers;
  const int before = written > 0 ? written : num_servers_of_log(folder);
  if (options_.num_servers == 0 || before == 0 || before == options_.num_servers) return;
  fail(Code::kFailedPrecondition, "what is in ", folder, " was written by one of ", before,
       " servers, and this is one of ", options_.num_servers,
       ", which have the variables in other shards: start ", before,
       " servers, or all of them with another snapshot folder, into which a checkpoint, or ",
       "ParameterClient::restore, brings the values");
}

bool Service::keep_log() {
  const std::string& folder = options_.snapshot_folder;
  const bool goes_on = !folder.empty() && has_log(folder);
  if (options_.log == ServerLog::kNone) {
    if (goes_on)
      fail(Code::kFailedPrecondition, "the server before this one has kept a log in ", folder,
           ": start this one with `log`, too, or remove the files changes-* and what they say");
    return false;
  }
  // Also where those before have been removed: what is added is to be found by whoever begins with
  // this snapshot.
  const int64_t first_file = std::max<int64_t>(1, facts_of_snapshot(folder).log_goes_on);
  if (goes_on) replay(first_file);
  log_ = std::make_unique<ChangeLog>(folder, options_.log == ServerLog::kSynced,
                                     options_.num_servers, first_file);
  return goes_on;
}

void Service::replay(int64_t first_file) {
  std::set<std::string> broken_off;
  const uint64_t changes =
      replay_log(options_.snapshot_folder,
                 {.create =
                      [this](const ShardSpec& spec, const Tensor& initial, uint64_t birth) {
                        if (find(spec.name) == nullptr) create(spec, initial, birth);
                      },
                  .find = [&](const std::string& name, uint64_t version) -> std::shared_ptr<Shard> {
                    auto shard = find(name);
                    if (shard == nullptr || version == shard->version()) return shard;
                    // It has done so already, or what comes before is missing.
                    if (version > shard->version() && broken_off.insert(name).second)
                      options_.notice(str("parameter server: shard \"", name, "\" ends at version ",
                                          shard->version(), ": the log goes on with version ",
                                          version, ", and what is between cannot be read"));
                    return nullptr;
                  },
                  .notice = options_.notice,
                  .first_file = first_file});
  remember(shards());
  options_.notice(
      str("parameter server: ", changes, " changes from the log in ", options_.snapshot_folder));
}

int64_t Service::restore_own() {
  const std::string& folder = options_.snapshot_folder;
  try {
    return restore_last();
  } catch (const Error& last) {
    if (last.code() != Code::kDataLoss) throw;
    try {
      go_back_to_previous(folder);
    } catch (const Error& previous) {
      if (previous.code() == Code::kNotFound) throw last;
      fail(previous.code(), last.message(), "; and the snapshot before it: ", previous.message());
    }
    options_.notice(str("parameter server: the last snapshot is damaged: ", last.message(),
                        "; this server goes on from the one before it"));
  }
  return restore_last();
}

int64_t Service::restore_last() {
  require_as_many_servers();
  const std::string& folder = options_.snapshot_folder;
  try {
    const int64_t shards = restore(folder);
    options_.notice(str("parameter server: ", shards, " shards from the snapshot in ", folder));
    return shards;
  } catch (const Error& error) {
    if (error.code() != Code::kNotFound) throw;
    return 0;  // none yet
  }
}

int64_t Service::restore(const std::string& folder) {
  const int64_t count = restore_from(folder);
  // What the log has said so far is of other values. Where it cannot begin anew, it breaks off
  // here: versions have moved on from those that it says.
  if (log_ != nullptr) snapshot(options_.snapshot_folder);
  return count;
}

int64_t Service::restore_from(const std::string& folder) {
  require_folder(folder);
  const bool is_own = has_snapshot(folder);
  const std::vector<SavedShard> saved = is_own ? read_snapshot(folder) : read_snapshots(folder);
  // Another one would give back the room that this one makes.
  const std::lock_guard lock(restore_mutex_);
  // All is looked at, and the memory taken, before anything changes.
  const auto present = shards();
  if (is_own && present.empty()) return make_shards(saved);
  const std::vector<Restoring> restored = find_in(saved, present);
  if (is_own && restored.empty() && !saved.empty()) refuse_other_names(folder, saved, present);
  Rooms rooms;
  for (const Restoring& one : restored) rooms.make(one.shard, one.rows);
  std::vector<std::shared_ptr<Shard>> changed;
  for (const Restoring& one : restored) {
    one.shard->restore(one.load());
    changed.push_back(one.shard);
  }
  remember(changed);
  return static_cast<int64_t>(restored.size());
}

int64_t Service::make_shards(const std::vector<SavedShard>& saved) {
  for (const SavedShard& one : saved) one.about.spec.check(options_.max_bytes);
  std::vector<std::shared_ptr<Shard>> made;
  for (const SavedShard& one : saved)
    made.push_back(std::make_shared<Shard>(one.load(), environment()));
  remember(made);
  int64_t count = 0;
  for (const auto& shard : made) {
    const std::unique_lock lock(shards_mutex_);
    count += shards_.emplace(shard->spec().name, shard).second;
  }
  return count;
}

// Who has pushed before: perhaps it has ended meanwhile, and nobody has to wait for it to come;
// synchronous training gives all some time, so that it goes on as it was.
void Service::remember(const std::vector<std::shared_ptr<Shard>>& restored) {
  const bool synchronous = options_.consistency.synchronous();
  std::set<std::string> tasks;
  for (const auto& shard : restored) {
    if (synchronous && !shard->makes_rounds()) continue;  // who adds takes no part in training
    for (const auto& [task, mark] : shard->marks())
      // Of a coordinator's lane or executor, or what a task has written (kWrites): no worker.
      if (task.find('/') == std::string::npos) tasks.insert(task);
  }
  const auto until = time_to_return();
  with_clocks([&](ClockTable& clocks) {
    for (const std::string& task : tasks) {
      if (synchronous)
        clocks.expect(task, until);
      else
        clocks.saw(task);
    }
  });
  if (synchronous) at(until, [this] { settle_rounds(); });
}

}  // namespace cohort::parameter_server
