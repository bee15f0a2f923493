#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>

#include "core/tensor/tensor.h"

// Parts of a shared area: those that one side has filled, in the order in which it sent them.
namespace cohort::parameter_server {

// What some bytes take of an area, so that what follows is aligned.
size_t room_for(size_t bytes);

// The sender's list. It is kept in memory of its own: nothing that the other side writes into the
// area has a say in it. One thread at a time.
class SentSegments {
 public:
  explicit SentSegments(size_t area_bytes) : area_bytes_(area_bytes) {}

  // The offset of `bytes` bytes that nobody uses; nothing while there are not so many in a row.
  std::optional<size_t> take(size_t bytes);
  // The oldest `count` are free. kDataLoss when there are not so many.
  void give_back(uint64_t count);
  void clear() { segments_.clear(); }
  bool empty() const { return segments_.empty(); }

 private:
  struct Segment {
    size_t begin, end;
  };
  const size_t area_bytes_;
  std::deque<Segment> segments_;
};

// The receiver's list. Thread-safe.
class ReceivedSegments {
 public:
  // `news` is called, by whoever lets go of a segment, when so many bytes can be given back that
  // the sender ought to know. It must not block.
  ReceivedSegments(size_t news_bytes, std::function<void()> news);

  // A segment that has arrived: memory that its owners may read until they let go of it.
  // `area` is kept alive by it.
  std::shared_ptr<Buffer> add(std::shared_ptr<const void> area, char* data, size_t bytes);
  // How many of the oldest nobody uses any more, for the sender; 0 while it is not worth saying.
  uint64_t take_due();
  // The sender may use all again, whoever still holds them.
  void clear();

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace cohort::parameter_server
