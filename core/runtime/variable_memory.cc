#include "core/runtime/variable_memory.h"

#include <algorithm>

namespace cohort {
namespace {

// Where the copy of local replica `replica` lies; replicas may share the last one.
Device home_of(const Variable& variable, int replica) {
  const auto devices = variable.devices();
  return devices[std::min(static_cast<size_t>(replica), devices.size() - 1)];
}

}  // namespace

bool is_host(Device device) { return device_backend(device.type).shares_host_memory(); }

void copy_between_devices(Device from, const void* source, Device to, void* target, size_t bytes) {
  if (bytes == 0) return;
  if (is_host(from)) return device_backend(to.type).copy_from_host(to, source, target, bytes);
  if (is_host(to)) return device_backend(from.type).copy_to_host(from, source, target, bytes);
  const auto between = allocate_host_buffer(bytes);
  device_backend(from.type).copy_to_host(from, source, between->data, bytes);
  device_backend(to.type).copy_from_host(to, between->data, target, bytes);
}

void* VariableMemory::of(Resource* resource) {
  const auto [it, added] = entries_.try_emplace(resource);
  Entry& entry = it->second;
  if (added) {
    auto* variable = dynamic_cast<Variable*>(resource);
    COHORT_CHECK(variable != nullptr);
    entry.variable = variable;
    entry.storage =
        outside_ ? variable->storage_outside(local_replica_) : variable->storage(local_replica_);
    entry.home = home_of(*variable, local_replica_);
    entry.is_written_by_others = !variable->is_written_by(local_replica_);
    if (entry.home != device_ && !(is_host(entry.home) && is_host(device_))) {
      has_copies_ = true;
      entry.copy = allocate_tensor(device_, variable->spec(),
                                   str("a copy of variable \"", variable->name(), "\""));
    }
  }
  return entry.is_in_reach() ? entry.storage.raw() : entry.copy.raw();
}

template <typename F>
void VariableMemory::for_each(const Variables& variables, const F& work) {
  for (const Resource* resource : variables)
    if (const auto it = entries_.find(resource); it != entries_.end()) work(it->second);
}

void VariableMemory::begin_run(const Variables& written) {
  if (!outside_) return;
  for (const auto& [resource, entry] : entries_) entry.variable->begin_read_outside();
  for_each(written, [](const Entry& entry) { entry.variable->begin_write_outside(); });
}

void VariableMemory::end_run(const Variables& written) {
  if (!outside_) return;
  for_each(written, [](const Entry& entry) { entry.variable->end_write_outside(); });
}

void VariableMemory::load() {
  if (!has_copies_) return;
  for (auto& [resource, entry] : entries_) load(entry);
}

void VariableMemory::store(const Variables& written) {
  if (!has_copies_) return;
  for_each(written, [this](Entry& entry) {
    if (!entry.is_in_reach())
      copy_between_devices(device_, entry.copy.raw(), entry.home, entry.storage.raw(),
                           entry.storage.bytes());
  });
}

void VariableMemory::refresh(const Variables& read) {
  for_each(read, [this](Entry& entry) {
    if (entry.is_written_by_others) load(entry);
  });
}

void VariableMemory::load(Entry& entry) {
  if (!entry.is_in_reach())
    copy_between_devices(entry.home, entry.storage.raw(), device_, entry.copy.raw(),
                         entry.storage.bytes());
}

}  // namespace cohort
