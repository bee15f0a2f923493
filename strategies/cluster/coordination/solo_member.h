#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "strategies/cluster/coordination/in_memory_store.h"
#include "strategies/cluster/coordination/membership.h"
#include "strategies/cluster/coordination/roster.h"

namespace cohort::coordination {

// The membership of a task on its own: nobody to wait for, no network, no thread. Callbacks of
// on_failure run within report() and on_failure(), and the store stays usable to the end.
class SoloMember : public Membership {
 public:
  SoloMember(Roster roster, std::string job_id);

  int rank() const override { return 0; }
  int size() const override { return 1; }
  std::string task_name(int rank) const override;
  const std::string& job_id() const override { return job_id_; }
  uint64_t incarnation() const override { return incarnation_; }
  int64_t epoch() const override;
  KeyValueStore& store() override { return store_; }
  void barrier(const std::string& name, std::chrono::milliseconds timeout) override;
  std::optional<Error> failure() const override;
  FailureWatch on_failure(std::function<void(const Error&)> callback) override;
  void report(const Error& error) override;
  void announce_stop() override { stopping_ = true; }
  std::optional<int64_t> stop_step(int64_t steps_done) override;
  bool leave(std::chrono::milliseconds timeout) override;

 private:
  void check_usable() const;

  const Roster roster_;
  const std::string job_id_;
  const uint64_t incarnation_;
  InMemoryStore store_;
  std::atomic<bool> stopping_ = false;
  mutable std::mutex mutex_;
  std::optional<Error> failure_;
  bool left_ = false;
  std::shared_ptr<FailureCallbacks> callbacks_ = std::make_shared<FailureCallbacks>();
};

}  // namespace cohort::coordination
