#include "core/collective/bucket.h"

#include <algorithm>
#include <cstring>

namespace cohort {

Bucket::Bucket(std::span<const Segment> segments, DType dtype)
    : dtype_(dtype), width_(static_cast<int64_t>(dtype_size(dtype))) {
  for (const Segment& segment : segments) {
    if (segment.count == 0) continue;
    segments_.push_back(segment);
    begins_.push_back(total_);
    total_ += segment.count;
  }
  begins_.push_back(total_);
}

template <typename Part>
void Bucket::for_each(ElementRange range, const Part& part) const {
  if (range.count == 0) return;
  auto i = static_cast<size_t>(std::upper_bound(begins_.begin(), begins_.end(), range.begin) -
                               begins_.begin() - 1);
  for (int64_t done = 0; done < range.count; ++i) {
    const int64_t first = range.begin + done - begins_[i];
    const int64_t count = std::min(segments_[i].count - first, range.count - done);
    part(segments_[i], first, count, done);
    done += count;
  }
}

void Bucket::pack(ElementRange range, char* memory) const {
  for_each(range, [&](const Segment& segment, int64_t first, int64_t count, int64_t done) {
    std::memcpy(memory + bytes(done), static_cast<const char*>(segment.source) + bytes(first),
                static_cast<size_t>(bytes(count)));
  });
}

void Bucket::unpack(ElementRange range, const char* memory) const {
  for_each(range, [&](const Segment& segment, int64_t first, int64_t count, int64_t done) {
    if (segment.target != nullptr)
      std::memcpy(static_cast<char*>(segment.target) + bytes(first), memory + bytes(done),
                  static_cast<size_t>(bytes(count)));
  });
}

const void* Bucket::view(ElementRange range, char* memory) const {
  if (const void* const whole = source(range)) return whole;
  pack(range, memory);
  return memory;
}

const void* Bucket::source(ElementRange range) const {
  const void* whole = nullptr;
  for_each(range, [&](const Segment& segment, int64_t first, int64_t count, int64_t) {
    if (count == range.count) whole = static_cast<const char*>(segment.source) + bytes(first);
  });
  return whole;
}

void* Bucket::target(ElementRange range) const {
  void* whole = nullptr;
  for_each(range, [&](const Segment& segment, int64_t first, int64_t count, int64_t) {
    if (count == range.count && segment.target != nullptr)
      whole = static_cast<char*>(segment.target) + bytes(first);
  });
  return whole;
}

}  // namespace cohort
