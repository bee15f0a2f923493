#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <sys/uio.h>

#include "strategies/cluster/net/descriptor.h"
#include "strategies/parameter_server/change.h"
#include "strategies/parameter_server/shard.h"

namespace cohort::parameter_server {

namespace proto {
class LogEntry;
}  // namespace proto

// What a server has acknowledged since the snapshot before its last one, in files beside them.
// Thread-safe.
//
// The files, "changes-<n>", follow each other, and hold entries in the host's byte order: the
// lengths of payload (8 bytes) and header (4 bytes), the CRC-32C of these, of header and of payload
// (4 bytes), the header (proto::LogEntry) and the payload. Entries of one shard come in the order
// in which its changes were made, and the first one of a server without a snapshot makes a shard,
// and says how many servers the job has.
class ChangeLog {
 public:
  // Begins a file behind those that the folder has, of no lower number than `first_file`. `synced`:
  // what is added is on the disk. `num_servers` are those of the job; 0: not known. Errors as those
  // of files.
  ChangeLog(std::string folder, bool synced, int num_servers = 0, int64_t first_file = 1);

  // Both: kResourceExhausted where the disk is full; then the log is as before.
  void add(const Change& change);
  // A new shard, and its birth; `initial` is nothing for a table with rows on first use.
  void add(const ShardSpec& spec, const Tensor& initial, uint64_t birth = 0);

  // Goes on in a file that nothing has been added to, a new one where this one has something, and
  // returns its number.
  int64_t begin_file();
  // There is a snapshot that the log goes on from in this file. What the one before it needs, for
  // where this one is damaged, stays, and where that is of another start all that is there.
  void saved_before(int64_t file);

 private:
  void write(const proto::LogEntry& entry, std::span<const iovec> payload);
  void append(std::span<iovec> pieces);
  void open(int64_t file);

  const std::string folder_;
  const bool synced_;
  const int num_servers_;
  std::mutex mutex_;
  net::Descriptor file_;
  int64_t number_ = 0, size_ = 0;
  int64_t saved_before_ = 0;  // as of the last snapshot; 0: not known
};

// How what a log says is done again.
struct LogReplay {
  // Makes a shard where it is not there.
  std::function<void(const ShardSpec& spec, const Tensor& initial, uint64_t birth)> create;
  // The shard that is to change from this version on; null where it has done so already, or is not
  // at that version because changes before it could not be read.
  std::function<std::shared_ptr<Shard>(const std::string& name, uint64_t version)> find;
  // Gets a line where a file goes on with what cannot be read.
  std::function<void(const std::string& line)> notice;
  // What is in the files before this one has been done.
  int64_t first_file = 0;
};

// Does again what the log of a folder says, as far as it can be read: the last entry of a server
// that was killed may be cut off. Returns how many changes that were. kDataLoss, naming the file,
// where an entry that is whole does not fit the shards.
uint64_t replay_log(const std::string& folder, const LogReplay& replay);

// How many servers the job had whose server began the log of a folder; 0 where there is none, or it
// does not say, as where it goes on from a snapshot.
int num_servers_of_log(const std::string& folder);

// Whether the log of a folder says anything. Errors as those of files where that cannot be seen.
bool has_log(const std::string& folder);

}  // namespace cohort::parameter_server
