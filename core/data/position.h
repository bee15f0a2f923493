#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace cohort::data {

// Where a stream stands: a tree shaped like its pipeline, of counts from which the stream can find
// its place again, never of elements. As JSON a position is [kind, [numbers], input...], and one
// that is saved is [checksum, position].
struct Position {
  std::string kind;              // the transformation that wrote it, such as "shuffle"
  std::vector<int64_t> numbers;  // what they mean is up to that transformation
  std::vector<Position> inputs;
  // Cleared by who reads elements again by their numbers, of an input that may number them
  // otherwise the next time.
  bool restorable = true;

  // kFailedPrecondition when another kind of transformation wrote this position; kDataLoss when the
  // counts of its numbers and inputs are not these.
  void expect(std::string_view wanted_kind, size_t wanted_numbers, size_t wanted_inputs) const;
  // kFailedPrecondition when number `index`, what the transformation was called with, is not
  // `here`.
  void expect_argument(size_t index, int64_t here) const;
  // A number that has to be in 0 to `most`, or kDataLoss.
  int64_t number(size_t index, int64_t most = INT64_MAX) const;
  [[noreturn]] void fail_corrupt() const;
};

// kFailedPrecondition when a part of the position is not restorable.
std::string to_json(const Position& position);
// kDataLoss when the text is not what to_json() has returned, kFailedPrecondition when that was one
// of the first version, without a checksum.
Position position_from_json(std::string_view text);

}  // namespace cohort::data
