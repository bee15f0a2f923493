#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "core/tensor/tensor.h"

namespace cohort {

// Memory of a library's allocator that is in use, by address: groups find in it what their calls
// lie in. It has to outlive what it has lent. Thread-safe.
class LentMemory {
 public:
  // `memory` for its user, which others that have found it may hold for longer.
  std::shared_ptr<Buffer> lend(std::shared_ptr<Buffer> memory);
  // What `address` lies in; null where that is nothing that a user has.
  std::shared_ptr<Buffer> find(const void* address) const;

 private:
  void end(const Buffer& memory);

  mutable std::mutex mutex_;
  std::map<const char*, std::shared_ptr<Buffer>> loans_;  // by where they begin
};

// What a group has registered of memory that is lent, and so holds. Memory may have been lent
// before there was the group, and outlive it. One thread at a time.
class Registrations {
 public:
  using Register = std::function<void*(const Buffer& memory)>;  // gives a handle
  using Deregister = std::function<void(void* handle)>;

  Registrations(const LentMemory& lent, Register add, Deregister remove)
      : lent_(lent), register_(std::move(add)), deregister_(std::move(remove)) {}

  // Registers what `address` lies in, unless that is nothing lent or has been registered.
  void add(const void* address);
  // Deregisters what has no user any more.
  void remove_unused();
  void remove_all();

 private:
  struct Registration {
    std::shared_ptr<Buffer> memory;
    void* handle;
  };

  const LentMemory& lent_;
  const Register register_;
  const Deregister deregister_;
  std::vector<Registration> registered_;
};

}  // namespace cohort
