#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <shared_mutex>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "strategies/parameter_server/push_ledger.h"
#include "strategies/parameter_server/server_options.h"
#include "strategies/parameter_server/shard.h"

namespace cohort::parameter_server {

// Pushes that were acknowledged and are lost, for the server has been killed since: a server counts
// them, and says whose they are. Thread-safe.
class LostPushes {
 public:
  // `find` gives the shard of a name, or null, on any thread. The options outlive this.
  LostPushes(const ParameterServerOptions& options,
             std::function<std::shared_ptr<Shard>(const std::string& name)> find);

  // As Service::keep_ledger(). Whether something has been lost of which nobody knows yet.
  bool keep_ledger(bool anew);
  // Of the starts of tasks that have come or pushed before, in their order: the ledger's.
  std::map<PushLedger::Key, std::vector<Mark>> starts();
  // Writes down that a start of a task has come, whether or not it will push.
  void write_down_start(const Start& start);
  // Writes down what the worker will know as acknowledged.
  void write_down(const std::string& shard, const std::string& task, const Mark& mark);
  // Counts what is lost of a task, or of all, that has not been counted before, and says so.
  void give_up(const std::optional<std::string>& task = {});
  // Counts pushes that are known to be lost.
  void add(const std::string& task, uint64_t pushes, const std::string& shard);
  // Says, in one line, what has been counted of a task since it was last said.
  void say(const std::string& task);
  // What was not saved by now is not wanted: there is nothing to write down any more.
  void end();
  uint64_t count() const { return count_; }

 private:
  struct Unreturned {
    Mark restored, last;
    uint64_t lost = 0;  // of the start of `last`, and of those since that of `restored`
  };

  // Counted, and not said yet.
  struct Unsaid {
    uint64_t pushes = 0;
    std::map<std::string, uint64_t> shards;  // how many of these, by name
  };
  static std::string where(const Unsaid& lost);

  // Its file cannot be written. REQUIRES: there is one, and mutex_ held.
  void end_ledger(const Error& error);
  // A worker has pushed again of which the server before this one had more.
  void count_returned(const PushLedger::Key& key, const Mark& mark);

  const ParameterServerOptions& options_;
  const std::function<std::shared_ptr<Shard>(const std::string& name)> find_;
  std::atomic<uint64_t> count_ = 0;
  std::shared_mutex mutex_;  // guards what follows, but for what is in the ledger
  std::unique_ptr<PushLedger> ledger_;
  // What the server before this one had and this one has not, and nobody has counted.
  std::map<PushLedger::Key, Unreturned> unreturned_;
  std::mutex unsaid_mutex_;  // guards what follows; may be taken while the other is held
  std::map<std::string, Unsaid> unsaid_;  // by task
};

}  // namespace cohort::parameter_server
