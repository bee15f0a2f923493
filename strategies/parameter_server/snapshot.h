#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "strategies/cluster/net/descriptor.h"
#include "strategies/parameter_server/partitioner.h"
#include "strategies/parameter_server/shard.h"

// Shards on disk. A snapshot is a folder with a file "shards-<n>" and a file "snapshot.json". The
// former has the tensors of all shards, one behind the other, little-endian: of each shard the
// value, then the slots; of a table of rows on first use, the numbers of the rows in use before
// them. The latter names it, with its size and the CRC-32C of each tensor, and says all else about
// each shard: which rows of which variable it has, its update, version and marks; and what its
// server knows beside (SnapshotFacts). It is replaced last, so that a folder always has a
// whole snapshot: the new one or the one before.
//
// The one before stays, for where the new one is damaged later: "previous.json" is what
// "snapshot.json" was then, and the file that it names is there. Only go_back_to_previous() looks
// at it.
//
// No more than one shard has to be in memory besides those of the server.
namespace cohort::parameter_server {

inline constexpr char kSnapshotFile[] = "snapshot.json", kPreviousFile[] = "previous.json";
// Of each.
inline constexpr uint64_t kMaxManifestBytes = 256 << 20;

// What a snapshot says beside its shards.
struct SnapshotFacts {
  int num_servers = 0;      // of the job; 0: not known
  int64_t log_goes_on = 0;  // in this file, and those after it (change_log.h); 0: in all
};

// Writes a snapshot, shard by shard. Errors as those of files.
class SnapshotWriter {
 public:
  // Makes the folder where it is missing.
  explicit SnapshotWriter(const std::string& folder, const SnapshotFacts& facts = {},
                          uint64_t max_manifest_bytes = kMaxManifestBytes);
  // What has not been committed is removed.
  ~SnapshotWriter();
  SnapshotWriter(const SnapshotWriter&) = delete;
  SnapshotWriter& operator=(const SnapshotWriter&) = delete;

  void add(const ShardState& state);
  // All has been added: this is the folder's snapshot from now on, and the one that was is the one
  // before it, unless it is damaged. It is on the disk, and others are removed. Where the one that
  // was cannot be read for another reason, an error of files, and it stays.
  // kResourceExhausted where it could not be read again; then the folder's snapshot stays.
  void commit();

 private:
  std::string path() const { return folder_ + "/" + file_; }
  // Returns the check of the bytes.
  uint32_t write(std::string_view bytes);

  const std::string folder_, file_;
  const SnapshotFacts facts_;
  const uint64_t max_manifest_bytes_;
  net::Descriptor output_;
  uint64_t bytes_ = 0;
  std::string shards_;  // as in the manifest
  bool is_named_ = false;
};

// A shard of a snapshot.
struct SavedShard {
  ShardState about;  // without the parts, and the rows in use
  int64_t rows = 0;  // that it has in use
  // Of a table of rows on first use: which these are, ascending.
  std::function<std::vector<int64_t>()> load_row_ids = nullptr;
  // Of one of the parts, some of the rows in use, the first of which is number 0, into memory for
  // them. They are not compared once more: a check is of all rows.
  std::function<void(int part, const RowRange& rows, char* target)> read_rows = nullptr;
  // All of it. These are kDataLoss where it is not as it was written.
  std::function<ShardState()> load;
};

// Whether there is a snapshot in a folder. Errors as those of files.
bool has_snapshot(const std::string& folder);

// The snapshot in a folder, of which every byte has been compared with its checks. kNotFound where
// there is none; kDataLoss naming the file, and the tensor, that is damaged: missing, shorter, or
// not as it was written. What cannot be read for another reason, as for rights, descriptors, memory
// or the device (EIO), says nothing of what it is: errors as those of files. The contents may be
// hostile: no memory is taken by a size that the files do not have.
std::vector<SavedShard> read_snapshot(const std::string& folder);

// Makes the snapshot before the last one, of which every byte has been compared, the last one of a
// folder, which is lost. kNotFound where there is none before it; errors as above where that is
// damaged, or cannot be read, too: then nothing changes.
void go_back_to_previous(const std::string& folder);

// Of the snapshot in a folder; where there is none, or it does not say, nothing is known. Errors as
// above.
SnapshotFacts facts_of_snapshot(const std::string& folder);

// Those of all folders in a folder, such as one for each server. kInvalidArgument, naming both,
// where two have the same row of a variable, or say that other numbers of servers wrote them: one
// of them is from another time. Where they say how many servers there were, the folders are "ps-0"
// and so on: kInvalidArgument naming the one that is missing.
std::vector<SavedShard> read_snapshots(const std::string& folder);

// Removes the snapshot in a folder, with the one before it, and then the folder if it has nothing
// else. Whether there was one that could be removed.
bool remove_snapshot(const std::string& folder);

}  // namespace cohort::parameter_server
