#include "strategies/coordinator/resource_table.h"

#include <utility>

namespace cohort::coordinator {

ResourceHandle::~ResourceHandle() {
  if (const auto table = table_.lock()) table->drop(id_);
}

std::shared_ptr<const ResourceHandle> ResourceTable::add(ResourceSpec spec) {
  const std::lock_guard lock(mutex_);
  if (closed_) throw *closed_;
  const uint64_t id = ++last_;
  spec.create.resource = id;
  resources_.emplace(id, std::make_shared<const ResourceSpec>(std::move(spec)));
  return std::make_shared<const ResourceHandle>(weak_from_this(), id);
}

uint64_t ResourceTable::next_pass(const std::string& dataset) {
  const std::lock_guard lock(mutex_);
  return passes_[dataset]++;
}

void ResourceTable::close(const Error& why) {
  const std::lock_guard lock(mutex_);
  closed_ = why;
}

void ResourceTable::begin(int worker) {
  const std::lock_guard lock(mutex_);
  workers_[static_cast<size_t>(worker)] = {};
}

ResourceTable::News ResourceTable::news(int worker, uint64_t last) {
  const std::lock_guard lock(mutex_);
  News news;
  for (auto it = resources_.upper_bound(last); it != resources_.end(); ++it)
    news.created.push_back(it->second);
  Worker& to = workers_[static_cast<size_t>(worker)];
  to.told = last_;
  news.dropped = std::exchange(to.dropped, {});
  return news;
}

void ResourceTable::drop(uint64_t id) {
  std::shared_ptr<const ResourceSpec> spec;  // may hold handles, whose destruction comes here again
  const std::lock_guard lock(mutex_);
  const auto found = resources_.find(id);
  if (found == resources_.end()) return;
  spec = std::move(found->second);
  resources_.erase(found);
  for (Worker& worker : workers_)
    if (id <= worker.told) worker.dropped.push_back(id);
}

}  // namespace cohort::coordinator
