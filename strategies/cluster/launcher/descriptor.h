#pragma once

#include <fcntl.h>
#include <unistd.h>
#include <utility>

#include "strategies/cluster/launcher/system_error.h"

namespace cohort::launcher {

// Owns a file descriptor, or none (-1).
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int descriptor) : descriptor_(descriptor) {}
  Descriptor(Descriptor&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }
  ~Descriptor() { close(); }

  int get() const { return descriptor_; }
  bool is_open() const { return descriptor_ >= 0; }
  void close() {
    if (is_open()) ::close(std::exchange(descriptor_, -1));
  }

 private:
  int descriptor_ = -1;
};

struct Pipe {
  Descriptor read_end, write_end;
};

// A pipe that no other program inherits.
inline Pipe make_pipe() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) fail_system("cannot make a pipe");
  return {Descriptor(ends[0]), Descriptor(ends[1])};
}

}  // namespace cohort::launcher
