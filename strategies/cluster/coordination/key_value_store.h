#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace cohort {

// What the tasks of a job tell each other: values by key, the same for all. Thread-safe.
//
// Keys have 1 to kMaxKeyBytes bytes, values up to kMaxValueBytes, any bytes; all of a store
// together kMaxStoreBytes, where each key takes kEntryBytes besides, as it does in memory. Beyond
// that: kInvalidArgument, and kResourceExhausted for the sum.
class KeyValueStore {
 public:
  static constexpr size_t kMaxKeyBytes = 1024;
  static constexpr size_t kMaxValueBytes = 1 << 20;
  static constexpr size_t kEntryBytes = 128;
  static constexpr size_t kMaxStoreBytes = 256 << 20;

  virtual ~KeyValueStore() = default;

  // Writes a value, in place of one that was there.
  virtual void set(std::string_view key, std::string_view value) = 0;
  // The value of a key; waits until somebody sets it. kDeadlineExceeded names key and timeout. With
  // a timeout of 0 it looks and does not wait.
  virtual std::string get(std::string_view key, std::chrono::milliseconds timeout) = 0;
  // The value of a key, nothing where there is none. Does not wait for it.
  virtual std::optional<std::string> find(std::string_view key) = 0;
  // Adds to a key's number, 0 if there is none, and returns the sum; get() gives it in decimal. No
  // other add comes in between. kFailedPrecondition where the value is no number, kOutOfRange where
  // the sum is beyond 64 bits.
  virtual int64_t add(std::string_view key, int64_t amount) = 0;
  // Writes `value` if the key has the value `expected`, or where nothing is expected, if it has
  // none; the result says whether it did. No other change comes in between: of those that find the
  // same, one writes. The two values together have up to kMaxValueBytes.
  virtual bool compare_set(std::string_view key, std::optional<std::string_view> expected,
                           std::string_view value) = 0;
  // Removes a key, if it is there.
  virtual void erase(std::string_view key) = 0;
  // Throws what the calls above would throw whatever they ask for, such as the failure of a job;
  // asks nobody, for those who wait for each other elsewhere.
  virtual void check() const {}
};

}  // namespace cohort
