#include "core/base/file.h"

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdio>
#include <ctime>
#include <fcntl.h>
#include <filesystem>
#include <optional>
#include <random>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include "core/base/error.h"
#include "core/base/system_error.h"

namespace cohort {
namespace {

// Closes on every way out; release() first where the result of close() matters.
class Descriptor {
 public:
  explicit Descriptor(int value) : value_(value) {}
  ~Descriptor() {
    if (value_ >= 0) ::close(value_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return value_; }
  int release() { return std::exchange(value_, -1); }

 private:
  int value_;
};

void write_all(int descriptor, std::string_view content, const std::string& path) {
  while (!content.empty()) {
    const ssize_t written = ::write(descriptor, content.data(), content.size());
    if (written < 0 && errno != EINTR) fail_errno("write", path);
    if (written > 0) content.remove_prefix(static_cast<size_t>(written));
  }
}

// A file written aside is called PATH.DIGITS.tmp, with digits at random, so that writers of the
// same path keep out of each other's way: in containers, or on several hosts, their processes may
// have the same id. As long as somebody writes it, it is locked.
constexpr std::string_view kAside = ".tmp";
constexpr size_t kDigits = 16;

// With what the names of files written aside for `path` begin: its own name, or as much of that as
// leaves room for the rest on any file system, in whole characters of UTF-8.
std::string aside_start_of(const std::string& path) {
  constexpr size_t kMost = 100;
  std::string name = std::filesystem::path(path).filename().string();
  if (name.size() > kMost) {
    const auto is_inside = [&](size_t i) {
      return (static_cast<unsigned char>(name[i]) >> 6) == 2;
    };
    size_t end = kMost;
    while (end > 0 && is_inside(end)) --end;
    name.resize(end);
  }
  return name + ".";
}

std::string new_aside_of(const std::string& path) {
  std::string name = aside_start_of(path);
  std::random_device device;
  for (size_t i = 0; i < kDigits; ++i) name += "0123456789abcdef"[device() % 16];
  name += kAside;
  return (std::filesystem::path(path).parent_path() / name).string();
}

bool is_aside_of(const std::string& path, std::string_view name) {
  const std::string start = aside_start_of(path);
  if (!name.starts_with(start) || !name.ends_with(kAside) ||
      name.size() != start.size() + kDigits + kAside.size())
    return false;
  const std::string_view digits = name.substr(start.size(), kDigits);
  return std::all_of(digits.begin(), digits.end(),
                     [](unsigned char c) { return std::isxdigit(c); });
}

// Whether the writer of a file has gone: the system takes its lock then. Where the file system has
// no locks, a file is left that nobody has written to for a while.
bool is_left(int file) {
  constexpr time_t kWhile = 3600;  // in seconds
  if (::flock(file, LOCK_EX | LOCK_NB) == 0) return true;
  struct stat status;
  return has_no_locks(errno) && ::fstat(file, &status) == 0 &&
         status.st_mtime + kWhile < ::time(nullptr);
}

// Removes what writers of `path` have left that were killed. What cannot be removed stays.
void remove_left_aside(const std::string& path) {
  const auto folder = std::filesystem::path(path).parent_path();
  std::error_code unreadable;
  std::filesystem::directory_iterator entry(folder.empty() ? "." : folder, unreadable);
  for (; !unreadable && entry != end(entry); entry.increment(unreadable)) {
    const std::string found = entry->path().string();
    if (!is_aside_of(path, entry->path().filename().string())) continue;
    const Descriptor file(::open(found.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK));
    if (file.get() >= 0 && is_left(file.get())) ::unlink(found.c_str());
  }
}

// The file that a path means, behind symbolic links, whether or not it is there.
std::string behind_links(const std::string& path) {
  if (path.empty()) invalid("the path of the file to be written is empty");
  constexpr int kMaxLinks = 40;  // as the system
  std::filesystem::path file = path;
  std::error_code error;
  for (int links = 0; std::filesystem::is_symlink(file, error); ++links) {
    const std::filesystem::path target = std::filesystem::read_symlink(file, error);
    if (links == kMaxLinks) error = std::make_error_code(std::errc::too_many_symbolic_link_levels);
    if (error) fail(code_of_errno(error.value()), "cannot replace ", path, ": ", error.message());
    file = file.parent_path() / target;
  }
  return file.string();
}

// The permissions of the file that is to be replaced; none where there is none, or it cannot be
// seen. kInvalidArgument for what is no file.
std::optional<mode_t> permissions_of_replaced(const std::string& path) {
  struct stat status;
  if (::stat(path.c_str(), &status) != 0) return std::nullopt;
  if (S_ISDIR(status.st_mode)) {
    errno = EISDIR;
    fail_errno("replace", path);
  }
  if (!S_ISREG(status.st_mode)) invalid("cannot replace ", path, ": it is not a regular file");
  return status.st_mode & 07777;
}

// A new file, locked where the file system has locks. Errors name the file that it is for, as do
// those below: what is written aside has another name each time.
Descriptor create_aside(const std::string& aside, const std::string& path) {
  for (;;) {
    const int file = ::open(aside.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (file < 0) fail_errno("write", path);
    struct stat status;
    // Somebody may have taken it for one left behind before it was locked.
    const bool is_there =
        ::flock(file, LOCK_EX) != 0 || ::fstat(file, &status) != 0 || status.st_nlink > 0;
    if (is_there) return Descriptor(file);
    ::close(file);
  }
}

// Opened before a file is replaced, to be synced afterwards.
Descriptor open_folder_of(const std::string& path) {
  const size_t slash = path.find_last_of('/');
  const std::string folder = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  const int descriptor = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) fail_errno("open the folder of", path);
  return Descriptor(descriptor);
}

// Makes a rename to `path` survive a crash.
void sync_folder(const Descriptor& folder, const std::string& path) {
  // Some network file systems cannot sync a folder and say so with EINVAL.
  if (::fsync(folder.get()) != 0 && errno != EINVAL) fail_errno("sync the folder of", path);
}

}  // namespace

InputFile::InputFile(std::string path) : path_(std::move(path)) {
  // O_NONBLOCK: opening a pipe must not wait for a writer. It has no effect on a regular file.
  Descriptor file(::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.get() < 0) fail_errno("open", path_);
  struct stat status;
  if (::fstat(file.get(), &status) != 0) fail_errno("inspect", path_);
  if (!S_ISREG(status.st_mode)) invalid("cannot read ", path_, ": it is not a regular file");
  size_ = static_cast<uint64_t>(status.st_size);
  descriptor_ = file.release();
}

InputFile::~InputFile() { ::close(descriptor_); }

size_t InputFile::read(void* to, size_t bytes) {
  size_t done = 0;
  while (done < bytes) {
    const ssize_t count = ::read(descriptor_, static_cast<char*>(to) + done, bytes - done);
    if (count < 0 && errno != EINTR) fail_errno("read", path_);
    if (count == 0) break;
    if (count > 0) done += static_cast<size_t>(count);
  }
  return done;
}

void InputFile::rewind() {
  if (::lseek(descriptor_, 0, SEEK_SET) < 0) fail_errno("read", path_);
}

std::string read_file(const std::string& path, uint64_t max_bytes) {
  InputFile file(path);
  if (file.size() > max_bytes)
    fail(Code::kResourceExhausted, path, " has ", file.size(), " bytes; at most ", max_bytes,
         " are read");
  std::string content(file.size(), '\0');
  content.resize(file.read(content.data(), content.size()));
  return content;
}

void write_file_atomically(const std::string& name, std::string_view content) {
  const std::string path = behind_links(name);
  const std::optional<mode_t> permissions = permissions_of_replaced(path);
  const Descriptor folder = open_folder_of(path);
  remove_left_aside(path);
  const std::string aside = new_aside_of(path);
  Descriptor file = create_aside(aside, path);
  try {
    if (permissions && ::fchmod(file.get(), *permissions) != 0)
      fail_errno("set the permissions of", path);
    write_all(file.get(), content, path);
    if (::fsync(file.get()) != 0) fail_errno("sync", path);
    if (::rename(aside.c_str(), path.c_str()) != 0) fail_errno("replace", path);
    if (::close(file.release()) != 0) fail_errno("close", path);
  } catch (...) {
    ::unlink(aside.c_str());
    throw;
  }
  sync_folder(folder, path);
}

void check_writable(const std::string& name) {
  const std::string path = behind_links(name);
  permissions_of_replaced(path);
  open_folder_of(path);
  remove_left_aside(path);
  const std::string aside = new_aside_of(path);
  const Descriptor file = create_aside(aside, path);
  ::unlink(aside.c_str());
}

void create_folders(const std::string& path) {
  std::error_code error;
  if (!path.empty()) std::filesystem::create_directories(path, error);
  if (!error) return;
  fail(code_of_errno(error.value()), "cannot create the folder ", path, ": ", error.message());
}

}  // namespace cohort
