#pragma once

#include <functional>
#include <memory>
#include <utility>

#include "strategies/multi_worker/worker_link.h"

namespace cohort::testing {

// A link whose groups of replicas are not as they should be.
class ChangedLink final : public WorkerLink {
 public:
  // The communicator of a replica in place of what it is given.
  using Change = std::function<std::unique_ptr<Communicator>(std::unique_ptr<Communicator>)>;
  ChangedLink(std::shared_ptr<WorkerLink> link, Change change)
      : link_(std::move(link)), change_(std::move(change)) {}

  int rank() const override { return link_->rank(); }
  int size() const override { return link_->size(); }
  std::string name(int rank) const override { return link_->name(rank); }
  std::vector<std::unique_ptr<Communicator>> connect(
      const std::string& name, int local, std::optional<std::chrono::milliseconds> limit) override {
    auto ranks = link_->connect(name, local, limit);
    if (name == "replicas")
      for (auto& rank : ranks) rank = change_(std::move(rank));
    return ranks;
  }
  KeyValueStore& store() override { return link_->store(); }
  KeyValueStore& own_store() override { return link_->own_store(); }
  void barrier(const std::string& name, std::chrono::milliseconds timeout) override {
    link_->barrier(name, timeout);
  }
  std::optional<Error> failure(std::chrono::milliseconds timeout) override {
    return link_->failure(timeout);
  }
  FailureWatch on_failure(std::function<void(const Error&)> callback) override {
    return link_->on_failure(std::move(callback));
  }
  void report(const Error& error) override { link_->report(error); }
  void leave(std::chrono::milliseconds timeout) override { link_->leave(timeout); }

 private:
  const std::shared_ptr<WorkerLink> link_;
  const Change change_;
};

}  // namespace cohort::testing
