#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "strategies/coordinator/function_table.h"
#include "strategies/coordinator/messages.h"

namespace cohort::coordinator {

class ResourceTable;

// Keeps something on every worker, until it is destroyed.
class ResourceHandle {
 public:
  ResourceHandle(std::weak_ptr<ResourceTable> table, uint64_t id)
      : table_(std::move(table)), id_(id) {}
  ~ResourceHandle();
  ResourceHandle(const ResourceHandle&) = delete;
  ResourceHandle& operator=(const ResourceHandle&) = delete;
  uint64_t id() const { return id_; }

 private:
  const std::weak_ptr<ResourceTable> table_;
  const uint64_t id_;
};

// How a worker makes a resource.
struct ResourceSpec {
  Create create;
  // Of the function of a kept value, as it is when the worker makes that: an optimizer may have
  // taken over a variable that it uses. The Run gets its function from it. Null for others.
  std::function<std::shared_ptr<const Definition>()> definition;
  std::vector<std::shared_ptr<const ResourceHandle>> resources;  // that it names
};

// What every worker has to have, in the order of making. Thread-safe.
class ResourceTable : public std::enable_shared_from_this<ResourceTable> {
 public:
  explicit ResourceTable(int num_workers) : workers_(static_cast<size_t>(num_workers)) {}

  // Gives the resource its number.
  std::shared_ptr<const ResourceHandle> add(ResourceSpec spec);
  // The number of a pass over a dataset that begins now: 0, 1, 2, ... of each name.
  uint64_t next_pass(const std::string& dataset);
  // From now on add() throws this.
  void close(const Error& why);
  // Worker `worker` has nothing.
  void begin(int worker);
  // What it has to do, which has all up to number `last`.
  struct News {
    std::vector<std::shared_ptr<const ResourceSpec>> created;
    std::vector<uint64_t> dropped;
  };
  News news(int worker, uint64_t last);

 private:
  friend class ResourceHandle;
  void drop(uint64_t id);

  std::mutex mutex_;
  std::optional<Error> closed_;
  uint64_t last_ = 0;
  std::map<std::string, uint64_t> passes_;  // begun
  std::map<uint64_t, std::shared_ptr<const ResourceSpec>> resources_;
  struct Worker {
    uint64_t told = 0;              // the last that it may have
    std::vector<uint64_t> dropped;  // of these, and it has not been told
  };
  std::vector<Worker> workers_;
};

}  // namespace cohort::coordinator
