#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "core/tensor/tensor.h"

namespace cohort::parameter_server {

// Memory for what comes and goes with each request, kept for the next one of the same size: new
// memory costs a page fault every 4 KiB. Thread-safe; buffers may outlive it.
class BufferCache {
 public:
  // Keeps at most `max_bytes` of unused memory.
  explicit BufferCache(size_t max_bytes) : state_(std::make_shared<State>(max_bytes)) {}

  // Undefined content; goes back when the last owner lets go of it.
  std::shared_ptr<Buffer> take(size_t bytes);

 private:
  struct State {
    explicit State(size_t max) : max_bytes(max) {}
    const size_t max_bytes;
    std::mutex mutex;
    size_t bytes = 0;
    std::unordered_map<size_t, std::vector<std::shared_ptr<Buffer>>> unused;
  };
  std::shared_ptr<State> state_;
};

}  // namespace cohort::parameter_server
