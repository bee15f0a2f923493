#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <string_view>
#include <vector>

#include "strategies/cluster/net/descriptor.h"
#include "strategies/parameter_server/shard.h"

namespace cohort::parameter_server {

// Which push of each start of a task a shard has had last, in a file beside the snapshots: so a
// server that was killed finds what it had acknowledged since its last snapshot, though nobody may
// push again to show it. And which starts have come, as pushes of number 0 to a shard without a
// name. What is written outlives the process, not the host. Thread-safe.
//
// The file, "pushes", is made of records of 512 bytes, in the host's byte order: incarnation and
// sequence (8 bytes each), the lengths of the names of task and shard (4 bytes each), the CRC-32C
// of both names (4 bytes), the number of the start among the task's at the shard (4 bytes), and the
// names, which go on in the next records where they are longer. Of a task at a shard there are the
// last kMaxStarts; what is beyond 65,536 records is not recorded. Reading ends at a record that is
// damaged.
class PushLedger {
 public:
  static constexpr size_t kMaxStarts = 4;
  struct Key {
    std::string shard, task;
    auto operator<=>(const Key&) const = default;
  };

  // Goes on with the file of a folder, or begins one. Errors as those of files.
  PushLedger(const std::string& folder, bool anew);

  // Of each start that is recorded, in their order.
  std::map<Key, std::vector<Mark>> marks() const;
  // Throws where the disk is full or broken. Does not wait for what is written of other records.
  // Where a later push of the start is written, nothing changes.
  void write(const Key& key, const Mark& mark);
  // There is nothing to find of the task's other starts any more. Throws as write().
  void keep_only(const Key& key, uint64_t incarnation);
  // There is nothing to find any more.
  void clear();

 private:
  struct Record {
    size_t number = 0;
    uint32_t start = 0;  // of the task, at the shard
    Mark mark;
  };
  void read();
  // Null where there is none.
  Record* find(const Key& key, uint64_t incarnation);
  void append(const Key& key, const Mark& mark);
  // Where that is later. REQUIRES: its start's.
  void overwrite(Record& record, const Mark& mark);
  void put(Record& record, uint64_t sequence);
  void write_at(size_t record, std::string_view bytes);

  const std::string path_;
  net::Descriptor file_;
  mutable std::shared_mutex mutex_;             // of which records there are
  std::map<Key, std::vector<Record>> records_;  // in the order of starts
  size_t num_records_ = 0;
  std::array<std::mutex, 64> record_mutexes_;  // of the sequences in them, by number
};

}  // namespace cohort::parameter_server
