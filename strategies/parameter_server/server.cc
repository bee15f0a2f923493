#include "strategies/parameter_server/server.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <initializer_list>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "core/base/error.h"
#include "core/base/file.h"
#include "core/base/lock_file.h"
#include "core/base/notice.h"
#include "core/base/program.h"
#include "core/base/start_threads.h"
#include "core/base/time_limits.h"
#include "strategies/parameter_server/direct_server.h"
#include "strategies/parameter_server/local_server.h"
#include "strategies/parameter_server/server_calls.h"
#include "strategies/parameter_server/service.h"
#include "strategies/parameter_server/snapshot.h"
#include "strategies/parameter_server/stream_server.h"
#include "strategies/parameter_server/wire.h"

namespace cohort {
namespace {

using namespace parameter_server;
using std::chrono::milliseconds;

constexpr milliseconds kLookInterval(50);

void require_at_least(int64_t least, const char* option, int64_t given) {
  if (given < least)
    invalid(option, " of a parameter server must be at least ", least, ", got ", given);
}

void require_times(std::initializer_list<std::pair<const char*, milliseconds>> times) {
  for (const auto& [option, time] : times)
    if (time.count() < 0)
      invalid(option, " of a parameter server must be at least 0 ms, got ", time.count(), " ms");
}

void check_ranges(const ParameterServerOptions& options) {
  options.consistency.check();
  require_at_least(0, "threads", options.threads);
  require_at_least(0, "num_servers", options.num_servers);
  require_at_least(1, "max_sessions", options.max_sessions);
  require_times({{"snapshot_interval", options.snapshot_interval},
                 {"orphaned_after", options.orphaned_after},
                 {"unclaimed_after", options.unclaimed_after},
                 {"worker_grace", options.worker_grace}});
}

ParameterServerOptions completed(ParameterServerOptions options, const Environment& environment) {
  check_ranges(options);
  if (options.job_id.empty()) options.job_id = environment("COHORT_JOB_ID").value_or("");
  if (!options.notice) options.notice = [](const std::string& line) { print_notice(line + "\n"); };
  if (options.snapshot_interval.count() > 0 && options.snapshot_folder.empty())
    invalid("snapshots every ", options.snapshot_interval.count(), " ms need a snapshot_folder");
  if (options.log != ServerLog::kNone && options.snapshot_folder.empty())
    invalid("a log needs a snapshot_folder");
  if (options.log != ServerLog::kNone && options.snapshot_interval.count() == 0)
    invalid("a log needs a snapshot_interval: it grows until the next snapshot");
  for (milliseconds* time : {&options.snapshot_interval, &options.orphaned_after,
                             &options.unclaimed_after, &options.worker_grace})
    *time = clamped(*time);
  return options;
}

}  // namespace

class ParameterServer::Network {
 public:
  Network(const Address& address, const ParameterServerOptions& options,
          const Environment& environment)
      : options_(completed(options, environment)),
        security_(options_.tls, options_.allow_plaintext, environment),
        service_(options_, [this] { shut_down(); }),
        calls_(service_),
        direct_(std::make_unique<DirectServer>(service_, security_)) {
    // Before anything in the folder is touched: who finds the port taken may be a second start of
    // the server that has both.
    server_ = std::make_unique<StreamServer>(
        address, security_,
        StreamServer::Options{
            .name = "parameter server",
            .method = kMethod,
            .accept = [this](auto tasks) { return accept(std::move(tasks)); },
            .direct = {.first_byte = kDirectByte,
                       .accept = [this](auto socket) { direct_->accept(std::move(socket)); }},
            .notice = options_.notice});
    restore();
    share_memory();
    service_.set_offering([this](const std::string& host, const std::shared_ptr<Start>& start) {
      return Service::Offer{.memory = local_ ? local_->offer(host, start) : std::nullopt,
                            .word = direct_->invite(start)};
    });
    is_ready_ = true;
    if (options_.snapshot_interval.count() > 0) saver_ = start_thread([this] { save_regularly(); });
  }

  ~Network() {
    stop_serving();
    if (take_last_snapshot()) save();
    service_.give_up_lost();
  }

  void end() {
    stop_serving();
    if (take_last_snapshot()) snapshot();
  }

  void wait() {
    const CatchTermination catching;
    std::unique_lock lock(mutex_);
    while (!ending_) {
      changed_.wait_for(lock, kLookInterval);
      const auto why = service_.is_orphaned();
      if (!why && !interrupted()) continue;
      if (why) options_.notice(*why);
      return;
    }
  }

  void snapshot() {
    if (options_.snapshot_folder.empty())
      fail(Code::kFailedPrecondition, "the server was started without a snapshot_folder");
    service_.snapshot(options_.snapshot_folder);
  }

  Service& service() { return service_; }

 private:
  StreamServer::Reactor* accept(coordination::CertifiedTasks tasks) {
    if (is_ready_) return calls_.accept(std::move(tasks));
    return calls_.turn_away(std::move(tasks),
                            Error(Code::kUnavailable, "it is starting, and reads its snapshot"));
  }

  void restore() {
    if (options_.snapshot_folder.empty()) return;
    take_folder();
    const int64_t shards = service_.restore_own();
    const bool had_log = service_.keep_log();
    service_.keep_ledger(shards == 0 && !had_log);
  }

  // The folder, where it is missing, and for this server alone.
  void take_folder() {
    const std::string& folder = options_.snapshot_folder;
    create_folders(folder);
    folder_.emplace(folder + "/lock",
                    str("another parameter server keeps its snapshots in ", folder,
                        ", or has not ended yet: each needs a folder of its own"));
  }

  void share_memory() {
    try {
      local_ = std::make_unique<LocalServer>(service_);
    } catch (const Error& error) {
      options_.notice(str("parameter server: no shared memory: ", error.what()));
    }
  }

  void stop_serving() {
    shut_down();
    if (saver_.joinable()) saver_.join();
    server_.reset();
    service_.set_offering(nullptr);
    local_.reset();
    direct_.reset();
  }

  void shut_down() {
    {
      const std::lock_guard lock(mutex_);
      ending_ = true;
    }
    changed_.notify_all();
  }

  // Whether it is still to be taken. What the job has not saved when it ends the server, which it
  // may do while those who are connected are served for the last time, is not wanted.
  bool take_last_snapshot() {
    const std::lock_guard lock(mutex_);
    return std::exchange(saves_at_end_, false) && !service_.is_ended();
  }

  // Also once new shards are there: without them a server that is killed could not come back,
  // unless they are in its log.
  void save_regularly() {
    const auto interval = options_.snapshot_interval;
    const bool needs_snapshot = options_.log == ServerLog::kNone;
    auto next = std::chrono::steady_clock::now() + interval;
    size_t seen = service_.shards().size(), saved = seen;
    std::unique_lock lock(mutex_);
    while (
        !changed_.wait_for(lock, std::min(interval, kLookInterval), [this] { return ending_; })) {
      const size_t before = std::exchange(seen, service_.shards().size());
      const bool are_new = needs_snapshot && seen != saved && seen == before;
      if (seen == 0 || (!are_new && std::chrono::steady_clock::now() < next)) continue;
      lock.unlock();
      save();
      lock.lock();
      saved = seen;
      next = std::chrono::steady_clock::now() + interval;
    }
  }

  // A reason why there is none is said once, until there is one again.
  void save() {
    try {
      snapshot();
      said_.clear();
    } catch (const std::exception& error) {  // also where there is no memory for one
      if (said_ == error.what()) return;
      said_ = error.what();
      options_.notice(str("parameter server: no snapshot: ", error.what(), "; ", last_snapshot()));
    }
  }

  // What a server that is started again would find.
  std::string last_snapshot() const {
    using FileTime = std::filesystem::file_time_type;
    std::error_code missing;
    const FileTime written =
        std::filesystem::last_write_time(options_.snapshot_folder + "/" + kSnapshotFile, missing);
    if (missing) return "there is none of before";
    const auto age = std::chrono::round<std::chrono::seconds>(FileTime::clock::now() - written);
    return str("the last one, of ", age.count(), " s ago, is still there");
  }

  const ParameterServerOptions options_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool ending_ = false;
  bool saves_at_end_ = options_.snapshot_at_end && !options_.snapshot_folder.empty();
  std::atomic<bool> is_ready_ = false;  // what was there before has been restored
  const coordination::Security security_;
  std::optional<LockFile> folder_;
  Service service_;
  ServerCalls calls_;
  std::unique_ptr<DirectServer> direct_;
  std::unique_ptr<LocalServer> local_;
  std::string said_;  // of save()
  std::thread saver_;
  std::unique_ptr<StreamServer> server_;  // last: its calls use the service
};

ParameterServer::ParameterServer(const Address& address, const ParameterServerOptions& options,
                                 const Environment& environment)
    : network_(std::make_unique<Network>(address, options, environment)) {}

ParameterServer::~ParameterServer() = default;

void ParameterServer::wait() { network_->wait(); }

bool ParameterServer::is_done() const { return network_->service().is_done(); }

std::vector<std::string> ParameterServer::unfinished() const {
  return network_->service().unfinished();
}

void ParameterServer::wait_for_callers(std::chrono::milliseconds limit) {
  network_->service().wait_for_callers(clamped(limit));
}

uint64_t ParameterServer::epoch() const { return network_->service().epoch(); }

ServerStatistics ParameterServer::statistics() const { return network_->service().statistics(); }

void ParameterServer::snapshot() { network_->snapshot(); }

void ParameterServer::end() { network_->end(); }

}  // namespace cohort
