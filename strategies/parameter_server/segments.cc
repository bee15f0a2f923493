#include "strategies/parameter_server/segments.h"

#include <mutex>
#include <utility>

#include "core/base/error.h"

namespace cohort::parameter_server {

size_t room_for(size_t bytes) {
  return (bytes + kBufferAlignment - 1) / kBufferAlignment * kBufferAlignment;
}

std::optional<size_t> SentSegments::take(size_t bytes) {
  const size_t room = room_for(bytes);
  size_t begin = 0, end = area_bytes_;
  if (!segments_.empty()) {
    const size_t oldest = segments_.front().begin;
    begin = segments_.back().end;
    if (begin <= oldest) {
      end = oldest;
    } else if (end - begin < room) {
      begin = 0;
      end = oldest;
    }
  }
  if (end - begin < room) return std::nullopt;
  segments_.push_back({begin, begin + room});
  return begin;
}

void SentSegments::give_back(uint64_t count) {
  if (count > segments_.size())
    fail(Code::kDataLoss, count, " segments were given back, ", segments_.size(), " were there");
  segments_.erase(segments_.begin(), segments_.begin() + static_cast<ptrdiff_t>(count));
}

struct ReceivedSegments::State {
  struct Segment {
    size_t bytes = 0;
    bool done = false;
  };
  State(size_t bytes, std::function<void()> call) : news_bytes(bytes), news(std::move(call)) {}

  void release(uint64_t number) {
    {
      const std::lock_guard lock(mutex);
      if (number < first) return;  // the list was cleared since
      segments[number - first].done = true;
      const bool known = done_bytes >= news_bytes;
      for (; !segments.empty() && segments.front().done; segments.pop_front(), ++first) {
        done_bytes += segments.front().bytes;
        ++done;
      }
      if (known || done_bytes < news_bytes) return;
    }
    news();
  }

  const size_t news_bytes;
  const std::function<void()> news;
  std::mutex mutex;
  std::deque<Segment> segments;  // but for the oldest that are done
  uint64_t first = 0;            // the number of segments[0]
  uint64_t done = 0;             // to be given back
  size_t done_bytes = 0;
};

ReceivedSegments::ReceivedSegments(size_t news_bytes, std::function<void()> news)
    : state_(std::make_shared<State>(news_bytes, std::move(news))) {}

std::shared_ptr<Buffer> ReceivedSegments::add(std::shared_ptr<const void> area, char* data,
                                              size_t bytes) {
  std::unique_ptr<Buffer> memory(new Buffer{data, bytes});
  uint64_t number = 0;
  {
    const std::lock_guard lock(state_->mutex);
    number = state_->first + state_->segments.size();
    state_->segments.push_back({.bytes = room_for(bytes)});
  }
  // From here on it is released, also where this throws.
  return {memory.release(), [state = state_, area = std::move(area), number](Buffer* buffer) {
            delete buffer;
            state->release(number);
          }};
}

uint64_t ReceivedSegments::take_due() {
  const std::lock_guard lock(state_->mutex);
  if (state_->done_bytes < state_->news_bytes) return 0;
  state_->done_bytes = 0;
  return std::exchange(state_->done, 0);
}

void ReceivedSegments::clear() {
  const std::lock_guard lock(state_->mutex);
  state_->first += state_->segments.size();
  state_->segments.clear();
  state_->done = 0;
  state_->done_bytes = 0;
}

}  // namespace cohort::parameter_server
