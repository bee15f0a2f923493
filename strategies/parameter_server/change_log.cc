#include "strategies/parameter_server/change_log.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <limits>
#include <optional>
#include <unistd.h>
#include <utility>
#include <vector>

#include "core/base/crc32c.h"
#include "core/base/error.h"
#include "core/base/file.h"
#include "core/base/system_error.h"
#include "proto/parameter_server.pb.h"
#include "strategies/parameter_server/folder_sync.h"
#include "strategies/parameter_server/spec_message.h"

namespace cohort::parameter_server {
namespace {

struct Head {
  uint64_t payload_bytes = 0;
  uint32_t header_bytes = 0, crc32c = 0;
};
constexpr size_t kLengthBytes = offsetof(Head, crc32c);
// An update that is a graph may be large.
constexpr uint32_t kMaxEntryHeaderBytes = 64 << 20;

iovec iovec_of(std::string_view bytes) { return {const_cast<char*>(bytes.data()), bytes.size()}; }
iovec iovec_of(const Tensor& tensor) {
  if (!tensor.defined()) return {nullptr, 0};
  return {const_cast<void*>(tensor.raw()), tensor.bytes()};
}
iovec iovec_of(std::span<const int64_t> rows) {
  return {const_cast<int64_t*>(rows.data()), rows.size_bytes()};
}

std::string_view bytes_of(const iovec& piece) {
  return {static_cast<const char*>(piece.iov_base), piece.iov_len};
}

std::string path_of(const std::string& folder, int64_t file) {
  return str(folder, "/changes-", file);
}

// The numbers of a folder's files, ascending. Errors as those of files, but none where there is no
// folder.
std::vector<int64_t> files_of(const std::string& folder) {
  std::vector<int64_t> files;
  std::error_code error;
  const std::filesystem::directory_iterator entries(folder, error);
  if (error && error != std::errc::no_such_file_or_directory)
    fail(code_of_errno(error.value()), "cannot list ", folder, ": ", error.message());
  for (const auto& entry : entries) {
    int64_t number = 0;
    const std::string name = entry.path().filename().string();
    if (std::sscanf(name.c_str(), "changes-%" SCNd64, &number) == 1 &&
        name == str("changes-", number))
      files.push_back(number);
  }
  std::ranges::sort(files);
  return files;
}

// An entry as it was read.
struct Entry {
  proto::LogEntry header;
  Tensor payload;  // uint8

  const char* at(size_t offset) const { return static_cast<const char*>(payload.raw()) + offset; }
  Tensor tensor(const TensorSpec& spec, size_t offset = 0) const {
    if (payload.bytes() != offset + spec.bytes())
      invalid("an entry of shard \"", header.shard(), "\" has ", payload.bytes(),
              " bytes instead of ", offset + spec.bytes());
    return Tensor(spec.dtype, spec.shape, payload.buffer(), offset);
  }
  // The payload's first numbers.
  std::span<const int64_t> rows(int64_t count) const {
    if (count < 0 || static_cast<uint64_t>(count) > payload.bytes() / sizeof(int64_t))
      invalid("an entry of shard \"", header.shard(), "\" has ", count, " rows in ",
              payload.bytes(), " bytes");
    return {static_cast<const int64_t*>(payload.raw()), static_cast<size_t>(count)};
  }
};

// The next entry; nothing where what is left is none.
std::optional<Entry> read_entry(InputFile& file, uint64_t& left) {
  Head head;
  if (file.read(&head, sizeof head) < sizeof head) return std::nullopt;
  left -= sizeof head;
  if (head.header_bytes > kMaxEntryHeaderBytes || head.header_bytes > left ||
      head.payload_bytes > left - head.header_bytes)
    return std::nullopt;
  left -= head.header_bytes + head.payload_bytes;
  std::string header(head.header_bytes, '\0');
  Entry entry{.header = {},
              .payload = Tensor(DType::kUInt8, {static_cast<int64_t>(head.payload_bytes)})};
  file.read(header.data(), header.size());
  file.read(entry.payload.raw(), head.payload_bytes);
  uint32_t check = crc32c({reinterpret_cast<const char*>(&head), kLengthBytes});
  check = crc32c(header, check);
  check = crc32c({entry.at(0), head.payload_bytes}, check);
  if (check != head.crc32c || !entry.header.ParseFromString(header)) return std::nullopt;
  return entry;
}

// What is said of a shard.
Change change_of(const Entry& entry, const ShardSpec& spec) {
  const proto::LogEntry& in = entry.header;
  Change change{.shard = in.shard(), .version = in.version(), .marks = {}, .what = {}};
  for (const proto::LogMark& mark : in.marks())
    change.marks[mark.task()] = {.incarnation = mark.incarnation(), .sequence = mark.sequence()};
  if (in.has_gradient()) {
    const proto::LogGradient& gradient = in.gradient();
    AppliedGradient applied{.values = {},
                            .rows = {},
                            .learning_rate = gradient.learning_rate(),
                            .number = gradient.number()};
    TensorSpec values = spec.spec();
    size_t before = 0;
    if (gradient.rows() >= 0) {
      const auto rows = entry.rows(gradient.rows());
      applied.rows.emplace(rows.begin(), rows.end());
      before = rows.size_bytes();
      if (values.shape.rank() == 0) invalid("shard \"", in.shard(), "\" has no rows");
      values.shape = values.shape.with_dim(0, gradient.rows());
    }
    applied.values = entry.tensor(values, before);
    change.what = std::move(applied);
  } else if (in.has_assign()) {
    change.what = AssignedPart{.part = in.assign().part(), .value = entry.tensor(spec.spec())};
  } else if (in.has_assign_rows()) {
    const auto rows = entry.rows(in.assign_rows().rows());
    if (entry.payload.bytes() != rows.size() * (sizeof(int64_t) + spec.row_bytes()))
      invalid("an entry of shard \"", in.shard(), "\" has ", entry.payload.bytes(), " bytes for ",
              rows.size(), " rows");
    change.what = AssignedRows{.part = in.assign_rows().part(),
                               .reset = in.assign_rows().reset(),
                               .only_missing = in.assign_rows().only_missing(),
                               .rows = rows,
                               .values = entry.at(rows.size_bytes()),
                               .value_bytes = rows.size() * spec.row_bytes()};
  }
  return change;
}

// Whether it has changed a shard.
bool replay_entry(const Entry& entry, const LogReplay& replay) {
  const proto::LogEntry& in = entry.header;
  if (in.has_create()) {
    const ShardSpec spec = read_shard_spec(in.create());
    spec.check(std::numeric_limits<size_t>::max());
    replay.create(spec, spec.lazy ? Tensor() : entry.tensor(spec.spec()), in.birth());
    return false;
  }
  const auto shard = replay.find(in.shard(), in.version());
  if (shard == nullptr) return false;
  shard->replay(change_of(entry, shard->spec()));
  return true;
}

}  // namespace

ChangeLog::ChangeLog(std::string folder, bool synced, int num_servers, int64_t first_file)
    : folder_(std::move(folder)), synced_(synced), num_servers_(num_servers) {
  create_folders(folder_);
  const std::vector<int64_t> files = files_of(folder_);
  open(files.empty() ? first_file : std::max(first_file, files.back() + 1));
}

void ChangeLog::open(int64_t file) {
  const std::string path = path_of(folder_, file);
  net::Descriptor opened(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  if (opened.get() < 0) fail_errno("open", path);
  try {
    if (synced_) sync_folder(folder_);
  } catch (const Error&) {
    ::unlink(path.c_str());  // else it would be in the way of the next attempt
    throw;
  }
  file_ = std::move(opened);
  number_ = file;
  size_ = 0;
}

int64_t ChangeLog::begin_file() {
  const std::lock_guard lock(mutex_);
  if (size_ > 0) open(number_ + 1);
  return number_;
}

void ChangeLog::saved_before(int64_t file) {
  int64_t needed = 0;
  {
    const std::lock_guard lock(mutex_);
    needed = std::exchange(saved_before_, file);
  }
  try {
    std::error_code ignored;
    for (const int64_t number : files_of(folder_))
      if (number < needed) std::filesystem::remove(path_of(folder_, number), ignored);
  } catch (const Error&) {  // they stay until the next snapshot
  }
}

void ChangeLog::add(const ShardSpec& spec, const Tensor& initial, uint64_t birth) {
  proto::LogEntry entry;
  entry.set_shard(spec.name);
  entry.set_birth(birth);
  entry.set_servers(static_cast<uint32_t>(num_servers_));
  write_shard_spec(spec, entry.mutable_create());
  const iovec payload = iovec_of(initial);
  write(entry, {&payload, 1});
}

void ChangeLog::add(const Change& change) {
  proto::LogEntry entry;
  entry.set_shard(change.shard);
  entry.set_version(change.version);
  for (const auto& [task, mark] : change.marks) {
    proto::LogMark& out = *entry.add_marks();
    out.set_task(task);
    out.set_incarnation(mark.incarnation);
    out.set_sequence(mark.sequence);
  }
  std::vector<iovec> payload;
  if (const auto* gradient = std::get_if<AppliedGradient>(&change.what)) {
    proto::LogGradient& out = *entry.mutable_gradient();
    out.set_learning_rate(gradient->learning_rate);
    out.set_number(gradient->number);
    out.set_rows(gradient->rows ? static_cast<int64_t>(gradient->rows->size()) : -1);
    if (gradient->rows) payload.push_back(iovec_of(*gradient->rows));
    payload.push_back(iovec_of(gradient->values));
  } else if (const auto* part = std::get_if<AssignedPart>(&change.what)) {
    entry.mutable_assign()->set_part(part->part);
    payload.push_back(iovec_of(part->value));
  } else if (const auto* rows = std::get_if<AssignedRows>(&change.what)) {
    entry.mutable_assign_rows()->set_part(rows->part);
    entry.mutable_assign_rows()->set_reset(rows->reset);
    entry.mutable_assign_rows()->set_only_missing(rows->only_missing);
    entry.mutable_assign_rows()->set_rows(static_cast<int64_t>(rows->rows.size()));
    payload.push_back(iovec_of(rows->rows));
    payload.push_back({const_cast<char*>(rows->values), rows->value_bytes});
  }
  write(entry, payload);
}

void ChangeLog::write(const proto::LogEntry& entry, std::span<const iovec> payload) {
  const std::string header = entry.SerializeAsString();
  Head head{.header_bytes = static_cast<uint32_t>(header.size())};
  for (const iovec& piece : payload) head.payload_bytes += piece.iov_len;
  const std::string_view begin(reinterpret_cast<const char*>(&head), sizeof head);
  head.crc32c = crc32c(header, crc32c(begin.substr(0, kLengthBytes)));
  for (const iovec& piece : payload) head.crc32c = crc32c(bytes_of(piece), head.crc32c);
  std::vector<iovec> pieces = {iovec_of(begin), iovec_of(header)};
  pieces.insert(pieces.end(), payload.begin(), payload.end());
  const std::lock_guard lock(mutex_);
  append(pieces);
}

void ChangeLog::append(std::span<iovec> pieces) {
  int64_t end = size_;
  while (!pieces.empty()) {
    errno = ENOSPC;  // where nothing is written and nothing said
    const ssize_t written =
        ::pwritev(file_.get(), pieces.data(), static_cast<int>(pieces.size()), end);
    if (written < 0 && errno == EINTR) continue;
    auto left = static_cast<size_t>(std::max<ssize_t>(written, 0));
    end += static_cast<int64_t>(left);
    for (; !pieces.empty() && left >= pieces[0].iov_len; pieces = pieces.subspan(1))
      left -= pieces[0].iov_len;
    if (left > 0)
      pieces[0] = {static_cast<char*>(pieces[0].iov_base) + left, pieces[0].iov_len - left};
    // A part of an entry may stay: the next one is written over it, and reading ends there.
    if (written <= 0 && !pieces.empty()) fail_errno("write", path_of(folder_, number_));
  }
  if (synced_ && ::fdatasync(file_.get()) != 0) fail_errno("write", path_of(folder_, number_));
  size_ = end;
}

uint64_t replay_log(const std::string& folder, const LogReplay& replay) {
  uint64_t changes = 0;
  for (const int64_t number : files_of(folder)) {
    if (number < replay.first_file) continue;
    InputFile file(path_of(folder, number));
    uint64_t left = file.size();
    while (left > 0) {
      const uint64_t before = left;
      try {
        const auto entry = read_entry(file, left);
        if (!entry) {
          replay.notice(str("parameter server: the last ", before, " bytes of ", file.path(),
                            " are no entry: they were cut off, or are damaged"));
          break;
        }
        changes += replay_entry(*entry, replay);
      } catch (const Error& error) {
        fail(Code::kDataLoss, file.path(), ", ", file.size() - before,
             " bytes after its beginning: ", error.message());
      }
    }
  }
  return changes;
}

int num_servers_of_log(const std::string& folder) {
  for (const int64_t number : files_of(folder)) {
    InputFile file(path_of(folder, number));
    uint64_t left = file.size();
    const auto first = left > 0 ? read_entry(file, left) : std::nullopt;
    if (first) return static_cast<int>(first->header.servers());
  }
  return 0;
}

bool has_log(const std::string& folder) {
  return std::ranges::any_of(
      files_of(folder), [&](int64_t file) { return InputFile(path_of(folder, file)).size() > 0; });
}

}  // namespace cohort::parameter_server
