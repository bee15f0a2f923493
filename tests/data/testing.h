#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "core/base/error.h"
#include "core/base/temporary_folder.h"
#include "core/data/dataset.h"

namespace cohort::data {

// The "value" of each element of a pass, as range() has it.
std::vector<int64_t> values(const Dataset& dataset, uint64_t epoch = 0);
// The values still to come from an iterator.
std::vector<int64_t> remaining(Iterator& iterator);
// begin, begin + 1, ..., end - 1.
std::vector<int64_t> count_up(int64_t begin, int64_t end);

// Runs `action`, which has to throw a cohort::Error, and returns that.
Error error_of(const std::function<void()>& action);
// Fails the test unless `action` throws an Error of this code with each of these texts in its
// message.
void expect_error(const std::function<void()>& action, Code code,
                  const std::vector<std::string>& texts);

// A number that threads raise and wait for, with a deadline.
class Level {
 public:
  void raise() {
    std::lock_guard lock(mutex_);
    ++level_;
    raised_.notify_all();
  }
  bool reaches(int level) {
    std::unique_lock lock(mutex_);
    return raised_.wait_for(lock, std::chrono::seconds(30), [&] { return level_ >= level; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable raised_;
  int level_ = 0;
};

// range(count), by a map() of two threads that may yield in the order of completion, in which 0
// comes after some others.
Dataset in_order_of_completion(int64_t count);

// An empty folder that goes with the test.
class TempDir {
 public:
  std::string path(std::string_view name) const;
  // Writes a file and returns its path.
  std::string write(std::string_view name, std::string_view content) const;
  const std::string& root() const { return folder_.path(); }

 private:
  const TemporaryFolder folder_{"data"};
};

std::string gzip(std::string_view content);
std::string big_endian(uint32_t value);
// An IDX file of unsigned bytes.
std::string idx_bytes(const std::vector<uint32_t>& dims, std::string_view content);

// Calls `read` on copies of a file with random bits flipped (the seed is printed when a check
// fails). It may succeed, or throw an Error that names the file and the place in it, and nothing
// else.
void expect_robust_to_flips(const std::string& name, std::string_view content,
                            const std::function<void(const std::string& path)>& read);
// That, and has to throw such an Error for each proper prefix of the file.
void expect_robust(const std::string& name, std::string_view content,
                   const std::function<void(const std::string& path)>& read);

}  // namespace cohort::data
