#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

namespace cohort {

// Whole files, with errors that name the file and what the system said: kNotFound,
// kPermissionDenied, kResourceExhausted (disk, descriptors), kInvalidArgument (a directory, pipe or
// device) or kUnknown.

// A regular file open for reading from its start; the rest of the system may read it too. Not
// synchronised.
class InputFile {
 public:
  explicit InputFile(std::string path);
  ~InputFile();
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  const std::string& path() const { return path_; }
  // In bytes, when it was opened: what a size written inside the file has to be compared with.
  uint64_t size() const { return size_; }
  // Reads the next `bytes` bytes and returns how many there were: fewer only at the end of the
  // file.
  size_t read(void* to, size_t bytes);
  // What is read next is its start again.
  void rewind();

 private:
  std::string path_;
  int descriptor_ = -1;
  uint64_t size_ = 0;
};

// The content of a regular file; kResourceExhausted when it is longer than `max_bytes`.
std::string read_file(const std::string& path,
                      uint64_t max_bytes = std::numeric_limits<uint64_t>::max());

// Replaces or creates a file: writes a file aside, syncs it to disk and renames it, so that after a
// crash `path` holds either the old content or the new one, whole. The folder must exist. A file
// that is replaced keeps its permissions, and a symbolic link stays one, whose file is replaced.
void write_file_atomically(const std::string& path, std::string_view content);

// For who computes for long before there is something to write: fails where
// write_file_atomically() would now, short of a full disk. `path` and what it holds stay as they
// are.
void check_writable(const std::string& path);

// Creates a folder, and those above it, where they are missing; "" is the current one.
void create_folders(const std::string& path);

}  // namespace cohort
