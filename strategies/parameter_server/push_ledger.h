#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <map>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <string_view>

#include "strategies/cluster/net/descriptor.h"
#include "strategies/parameter_server/shard.h"

namespace cohort::parameter_server {

// Which push of each task a shard has had last, in a file beside the snapshots: so a server that
// was killed finds what it had acknowledged since its last snapshot, though nobody may push again
// to show it. What is written outlives the process, not the host. Thread-safe.
//
// The file, "pushes", is made of records of 512 bytes, in the host's byte order: incarnation and
// sequence (8 bytes each), the lengths of the names of task and shard (4 bytes each), the CRC-32C
// of both names (4 bytes), 4 zeros, and the names. Longer names, and what is beyond 65,536 records,
// are not recorded. Reading ends at a record that is damaged.
class PushLedger {
 public:
  struct Key {
    std::string shard, task;
    auto operator<=>(const Key&) const = default;
  };

  // Goes on with the file of a folder, or begins one. Errors as those of files.
  PushLedger(const std::string& folder, bool anew);

  std::map<Key, Mark> marks() const;
  // Throws where the disk is full or broken. Does not wait for what is written of other records.
  void write(const Key& key, const Mark& mark);
  // There is nothing to find any more.
  void clear();

 private:
  struct Record {
    int64_t number = 0;
    Mark mark;
  };
  void read();
  // False where there is no such record.
  bool overwrite(const Key& key, const Mark& mark);
  void append(const Key& key, const Mark& mark);
  void write_at(int64_t record, std::string_view bytes);

  const std::string path_;
  net::Descriptor file_;
  mutable std::shared_mutex mutex_;  // of which records there are
  std::map<Key, Record> records_;
  std::array<std::mutex, 64> record_mutexes_;  // of what is in them, by number
};

}  // namespace cohort::parameter_server
