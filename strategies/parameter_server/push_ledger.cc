#include "strategies/parameter_server/push_ledger.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <unistd.h>

#include "core/base/crc32c.h"
#include "core/base/error.h"
#include "core/base/file.h"
#include "core/base/system_error.h"

namespace cohort::parameter_server {
namespace {

constexpr size_t kRecordBytes = 512, kMaxRecords = 65536;

struct Head {
  uint64_t incarnation = 0, sequence = 0;
  uint32_t task_bytes = 0, shard_bytes = 0, crc32c = 0, zeros = 0;
};
constexpr size_t kMarkBytes = offsetof(Head, task_bytes);
constexpr size_t kNameBytes = kRecordBytes - sizeof(Head);

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
  if (::ftruncate(file_.get(), 0) != 0) fail_errno("empty", path_);
}

void PushLedger::read() {
  const std::string text = read_file(path_, kRecordBytes * kMaxRecords);
  for (size_t at = 0; at + kRecordBytes <= text.size(); at += kRecordBytes) {
    Head head;
    std::memcpy(&head, text.data() + at, sizeof head);
    const std::string_view names(text.data() + at + sizeof head, kNameBytes);
    const uint64_t bytes = uint64_t{head.task_bytes} + head.shard_bytes;
    if (bytes > kNameBytes || crc32c(names.substr(0, bytes)) != head.crc32c) return;
    Key key{.shard = std::string(names.substr(head.task_bytes, head.shard_bytes)),
            .task = std::string(names.substr(0, head.task_bytes))};
    const auto number = static_cast<int64_t>(records_.size());
    const Mark mark{.incarnation = head.incarnation, .sequence = head.sequence};
    if (!records_.emplace(std::move(key), Record{number, mark}).second) return;
  }
}

std::map<PushLedger::Key, Mark> PushLedger::marks() const {
  const std::lock_guard lock(mutex_);
  std::map<Key, Mark> marks;
  for (const auto& [key, record] : records_) marks.emplace(key, record.mark);
  return marks;
}

void PushLedger::write(const Key& key, const Mark& mark) {
  if (overwrite(key, mark)) return;
  const std::lock_guard lock(mutex_);
  if (!records_.contains(key)) append(key, mark);
}

bool PushLedger::overwrite(const Key& key, const Mark& mark) {
  const Head head{.incarnation = mark.incarnation, .sequence = mark.sequence};
  const std::shared_lock lock(mutex_);
  const auto found = records_.find(key);
  if (found == records_.end()) return false;
  Record& record = found->second;
  const auto number = static_cast<size_t>(record.number);
  const std::lock_guard record_lock(record_mutexes_[number % record_mutexes_.size()]);
  write_at(record.number, bytes_of(head).substr(0, kMarkBytes));
  record.mark = mark;
  return true;
}

void PushLedger::append(const Key& key, const Mark& mark) {
  Head head{.incarnation = mark.incarnation, .sequence = mark.sequence};
  const std::string names = key.task + key.shard;
  if (names.size() > kNameBytes || records_.size() >= kMaxRecords) return;
  head.task_bytes = static_cast<uint32_t>(key.task.size());
  head.shard_bytes = static_cast<uint32_t>(key.shard.size());
  head.crc32c = crc32c(names);
  std::string record(bytes_of(head));
  record += names;
  record.resize(kRecordBytes);
  const auto number = static_cast<int64_t>(records_.size());
  write_at(number, record);
  records_.emplace(key, Record{number, mark});
}

void PushLedger::write_at(int64_t record, std::string_view bytes) {
  const auto place = static_cast<off_t>(record) * static_cast<off_t>(kRecordBytes);
  const ssize_t written = ::pwrite(file_.get(), bytes.data(), bytes.size(), place);
  if (written == static_cast<ssize_t>(bytes.size())) return;
  if (written >= 0) errno = ENOSPC;
  fail_errno("write", path_);
}

}  // namespace cohort::parameter_server
