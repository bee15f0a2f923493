#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "core/base/error.h"
#include "core/runtime/replica_group.h"
#include "core/tensor/tensor.h"

// Values as bytes, for processes of one program on machines of one kind to tell each other.
namespace cohort {

// Writes one value behind the other.
class Packer {
 public:
  void add(int64_t number);
  void add(std::string_view text);
  void add(const TensorSpec& spec);
  void add(const Signature& signature);
  void add(const Tensor& tensor);
  void add(const Error& error);
  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

// Reads what a Packer wrote, in its order; kDataLoss for anything else. Nothing is allocated by a
// size that the bytes do not hold.
class Unpacker {
 public:
  explicit Unpacker(std::string_view bytes) : rest_(bytes) {}

  int64_t number();
  std::string text();
  TensorSpec spec();
  Signature signature();
  Tensor tensor();
  Error error();  // kUnknown for a code that there is not
  bool at_end() const { return rest_.empty(); }

 private:
  // The next bytes.
  std::string_view take(uint64_t bytes);
  // A number from 0 to `most`.
  int64_t count(int64_t most);

  std::string_view rest_;
};

}  // namespace cohort
