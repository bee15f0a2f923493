#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/kernels/common/broadcast_view.h"
#include "core/kernels/cpu/tile_convert.h"
#include "core/kernels/cpu/tile_functions.h"
#include "core/tensor/tensor.h"

namespace cohort {

// An elementwise program prepared for tensors of given specs, computing in T = float, double or
// int64_t.
//
// The output's elements are cut into tiles of a few KiB. For each tile all inputs are brought into
// registers (memory of type T is read where it lies; anything else is converted or repeated into a
// slot of scratch), the instructions run as vector loops from register to register, and the outputs
// are stored. Everything between the first read and the last write stays in the L1 cache.
template <typename T>
class TileProgram {
 public:
  // All outputs have one shape, to which every input broadcasts. kUnimplemented naming the op when
  // an instruction does not exist for T.
  TileProgram(const ElementwiseProgram& program, std::span<const TensorSpec> inputs,
              std::span<const TensorSpec> outputs);

  int64_t num_tiles() const { return (size_ + tile_size_ - 1) / tile_size_; }
  // Scratch of one call of run(): a multiple of kBufferAlignment, and aligned to it.
  size_t scratch_bytes() const;

  // Computes tiles [begin, end). Distinct tiles may be computed at the same time.
  void run(int64_t begin, int64_t end, const void* const* inputs, void* const* outputs,
           void* scratch) const;

  // The memory of an input may be an output's when each of its elements is read before that place
  // is written.
  bool can_run_in_place(int output, int input) const;

 private:
  struct Input {
    BroadcastView view;
    DType dtype;
    TileConverter<T> converter;
    bool repeats_each_tile;  // loaded once for a stretch of tiles
    int slot;
    int last_use;  // the last instruction that reads it; past the end when it is an output as well
  };
  struct Instruction {
    TileFunction<T> function;
    int a, b, c;
    int slot;
  };
  struct Output {
    int source;  // register
    DType dtype;
    TileConverter<T> converter;
  };
  struct Workspace;  // the parts of the scratch memory

  void choose_tile_size();
  void assign_slots(const ElementwiseProgram& program);
  size_t pointer_bytes() const;
  Workspace split_scratch(void* scratch) const;
  void choose_targets(const void* const* inputs, void* const* outputs, const Workspace& w) const;
  const T* load(const Input& input, const void* source, int64_t begin, int64_t n, T* slot) const;
  void prefetch_in_place(int64_t begin, int64_t n, const void* const* inputs,
                         const Workspace& w) const;
  void run_tile(int64_t begin, int64_t n, const void* const* inputs, void* const* outputs,
                const Workspace& w) const;

  int64_t size_;  // elements of each output
  int64_t tile_size_;
  int num_slots_ = 0;
  std::vector<Input> inputs_;
  std::vector<Instruction> instructions_;
  std::vector<Output> outputs_;
};

}  // namespace cohort
