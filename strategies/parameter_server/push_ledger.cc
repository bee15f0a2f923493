#include "strategies/parameter_server/push_ledger.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <unistd.h>
#include <utility>

#include "core/base/crc32c.h"
#include "core/base/error.h"
#include "core/base/file.h"
#include "core/base/system_error.h"

namespace cohort::parameter_server {
namespace {

constexpr size_t kRecordBytes = 512, kMaxRecords = 65536;

struct Head {
  uint64_t incarnation = 0, sequence = 0;
  uint32_t task_bytes = 0, shard_bytes = 0, crc32c = 0, start = 0;
};
constexpr size_t kMarkBytes = offsetof(Head, task_bytes);

// How many records such names take.
size_t records_for(uint64_t name_bytes) {
  return (sizeof(Head) + name_bytes + kRecordBytes - 1) / kRecordBytes;
}

template <typename T>
std::string_view bytes_of(const T& value) {
  return {reinterpret_cast<const char*>(&value), sizeof(T)};
}

}  // namespace

PushLedger::PushLedger(const std::string& folder, bool anew) : path_(folder + "/pushes") {
  create_folders(folder);
  const int flags = O_RDWR | O_CREAT | O_CLOEXEC | (anew ? O_TRUNC : 0);
  file_ = net::Descriptor(::open(path_.c_str(), flags, 0666));
  if (file_.get() < 0) fail_errno("open", path_);
  read();
}

void PushLedger::clear() {
  const std::lock_guard lock(mutex_);
  records_.clear();
  num_records_ = 0;
  if (::ftruncate(file_.get(), 0) != 0) fail_errno("empty", path_);
}

void PushLedger::read() {
  const std::string text = read_file(path_, kRecordBytes * kMaxRecords);
  for (std::string_view left = text; left.size() >= kRecordBytes;) {
    Head head;
    std::memcpy(&head, left.data(), sizeof head);
    const uint64_t bytes = uint64_t{head.task_bytes} + head.shard_bytes;
    const size_t records = records_for(bytes);
    if (left.size() / kRecordBytes < records) return;
    const std::string_view names = left.substr(sizeof head, bytes);
    if (crc32c(names) != head.crc32c) return;
    left.remove_prefix(records * kRecordBytes);
    Key key{.shard = std::string(names.substr(head.task_bytes, head.shard_bytes)),
            .task = std::string(names.substr(0, head.task_bytes))};
    if (find(key, head.incarnation) != nullptr) return;
    std::vector<Record>& starts = records_[std::move(key)];
    starts.insert(std::ranges::upper_bound(starts, head.start, {}, &Record::start),
                  Record{.number = num_records_,
                         .start = head.start,
                         .mark = {.incarnation = head.incarnation, .sequence = head.sequence}});
    num_records_ += records;
  }
}

std::map<PushLedger::Key, std::vector<Mark>> PushLedger::marks() const {
  const std::lock_guard lock(mutex_);
  std::map<Key, std::vector<Mark>> marks;
  for (const auto& [key, starts] : records_)
    for (const Record& start : starts) marks[key].push_back(start.mark);
  return marks;
}

PushLedger::Record* PushLedger::find(const Key& key, uint64_t incarnation) {
  const auto found = records_.find(key);
  if (found == records_.end()) return nullptr;
  for (Record& record : found->second)
    if (record.mark.incarnation == incarnation) return &record;
  return nullptr;
}

void PushLedger::write(const Key& key, const Mark& mark) {
  {
    const std::shared_lock lock(mutex_);
    if (Record* const record = find(key, mark.incarnation)) return overwrite(*record, mark);
  }
  const std::lock_guard lock(mutex_);
  if (Record* const record = find(key, mark.incarnation)) return overwrite(*record, mark);
  append(key, mark);
}

void PushLedger::overwrite(Record& record, const Mark& mark) {
  const std::lock_guard lock(record_mutexes_[record.number % record_mutexes_.size()]);
  if (mark.sequence > record.mark.sequence) put(record, mark.sequence);
}

void PushLedger::keep_only(const Key& key, uint64_t incarnation) {
  const std::lock_guard lock(mutex_);
  const auto found = records_.find(key);
  if (found == records_.end()) return;
  for (Record& record : found->second)
    if (record.mark.incarnation != incarnation) put(record, 0);
}

void PushLedger::put(Record& record, uint64_t sequence) {
  const Head head{.incarnation = record.mark.incarnation, .sequence = sequence};
  write_at(record.number, bytes_of(head).substr(0, kMarkBytes));
  record.mark.sequence = sequence;
}

void PushLedger::append(const Key& key, const Mark& mark) {
  const std::string names = key.task + key.shard;
  const size_t records = records_for(names.size());
  const auto found = records_.find(key);
  std::vector<Record> starts;
  if (found != records_.end()) starts = found->second;
  Record added{.number = num_records_, .mark = mark};
  if (!starts.empty()) added.start = starts.back().start + 1;
  const bool is_more = num_records_ + records <= kMaxRecords && starts.size() < kMaxStarts;
  if (!is_more) {
    if (starts.empty()) return;
    added.number = starts.front().number;
    starts.erase(starts.begin());
  }
  const Head head{.incarnation = mark.incarnation,
                  .sequence = mark.sequence,
                  .task_bytes = static_cast<uint32_t>(key.task.size()),
                  .shard_bytes = static_cast<uint32_t>(key.shard.size()),
                  .crc32c = crc32c(names),
                  .start = added.start};
  std::string record(bytes_of(head));
  record += names;
  record.resize(records * kRecordBytes);
  write_at(added.number, record);
  if (is_more) num_records_ += records;
  starts.push_back(added);
  records_[key] = std::move(starts);
}

void PushLedger::write_at(size_t record, std::string_view bytes) {
  const auto place = static_cast<off_t>(record) * static_cast<off_t>(kRecordBytes);
  const ssize_t written = ::pwrite(file_.get(), bytes.data(), bytes.size(), place);
  if (written == static_cast<ssize_t>(bytes.size())) return;
  if (written >= 0) errno = ENOSPC;
  fail_errno("write", path_);
}

}  // namespace cohort::parameter_server
