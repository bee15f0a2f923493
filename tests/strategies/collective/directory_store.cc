#include "tests/strategies/collective/directory_store.h"

#include <algorithm>
#include <cstdio>
#include <fcntl.h>
#include <fstream>
#include <optional>
#include <sstream>
#include <sys/file.h>
#include <thread>
#include <unistd.h>

#include "core/base/error.h"

namespace cohort::testing {
namespace {

std::optional<std::string> read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return std::nullopt;
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

}  // namespace

std::string DirectoryStore::path(std::string_view key) const {
  std::string name(key);
  std::replace(name.begin(), name.end(), '/', '~');
  return folder_ + "/" + name;
}

void DirectoryStore::set(std::string_view key, std::string_view value) {
  const std::string temporary = str(path(key), ".", gettid());
  std::ofstream(temporary, std::ios::binary) << value;
  if (std::rename(temporary.c_str(), path(key).c_str()) != 0)
    fail(Code::kUnavailable, "cannot write ", path(key));
}

std::string DirectoryStore::get(std::string_view key, std::chrono::milliseconds timeout) {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  while (true) {
    if (auto value = read(path(key))) return *value;
    if (std::chrono::steady_clock::now() >= deadline)
      fail(Code::kDeadlineExceeded, "nobody has set ", key, " within ", timeout.count(), " ms");
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

int DirectoryStore::lock() const {
  const int lock = open((folder_ + "/lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  flock(lock, LOCK_EX);
  return lock;
}

std::optional<std::string> DirectoryStore::find(std::string_view key) { return read(path(key)); }

int64_t DirectoryStore::add(std::string_view key, int64_t amount) {
  const int lock = this->lock();
  const auto value = read(path(key));
  const int64_t sum = (value ? std::stoll(*value) : 0) + amount;
  set(key, str(sum));
  close(lock);
  return sum;
}

bool DirectoryStore::compare_set(std::string_view key, std::optional<std::string_view> expected,
                                 std::string_view value) {
  const int lock = this->lock();
  const auto found = read(path(key));
  const bool fits = expected ? found && *found == *expected : !found;
  if (fits) set(key, value);
  close(lock);
  return fits;
}

void DirectoryStore::erase(std::string_view key) { std::remove(path(key).c_str()); }

}  // namespace cohort::testing
