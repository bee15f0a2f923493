#include "strategies/parameter_server/shard_makers.h"

namespace cohort::parameter_server {

ShardMakers::Making::~Making() {
  if (!has_begun_) return;
  {
    const std::lock_guard lock(makers_.mutex_);
    share_.reset();
    makers_.tasks_.erase(shard_);
  }
  makers_.changed_();
}

std::shared_ptr<Buffer> ShardMakers::Making::memory(size_t bytes) {
  share_.emplace(&makers_.budget_).add(bytes, shard_);
  return allocate_host_buffer(bytes);
}

std::shared_ptr<ShardMakers::Making> ShardMakers::begin(const std::string& shard,
                                                        const std::string& task) {
  auto making = std::make_shared<Making>(*this, shard);
  const std::lock_guard lock(mutex_);
  making->has_begun_ = tasks_.try_emplace(shard, task).second;
  return making->has_begun_ ? making : nullptr;
}

std::string ShardMakers::maker(const std::string& shard) const {
  const std::lock_guard lock(mutex_);
  const auto found = tasks_.find(shard);
  return found == tasks_.end() ? std::string() : found->second;
}

size_t ShardMakers::memory_left(const std::string& shard, size_t all) const {
  const std::lock_guard lock(mutex_);
  return tasks_.contains(shard) ? all : budget_.left();
}

}  // namespace cohort::parameter_server
