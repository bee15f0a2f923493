#include "core/kernels/cpu/tile_program.h"

#include <algorithm>

#include "core/base/error.h"
#include "core/base/prefetch.h"

namespace cohort {
namespace {

// Elements of a register: eight live registers of 4 KiB fill a typical L1 cache.
template <typename T>
constexpr int64_t kCapacity = 4096 / sizeof(T);

int64_t operand(const ElementwiseProgram::Instruction& instruction, int i) {
  return i == 0 ? instruction.a : i == 1 ? instruction.b : instruction.c;
}

// For each register the last instruction that reads it (-1 if none); outputs are read after the
// last one.
std::vector<int> last_uses(const ElementwiseProgram& program) {
  const int count = static_cast<int>(program.instructions.size());
  std::vector<int> last(program.num_inputs + count, -1);
  for (int i = 0; i < count; ++i) {
    const auto& instruction = program.instructions[i];
    for (int k = 0; k < scalar_arity(instruction.op); ++k) last[operand(instruction, k)] = i;
  }
  for (int64_t source : program.outputs) last[source] = count;
  return last;
}

}  // namespace

template <typename T>
struct TileProgram<T>::Workspace {
  const T** registers;  // where each register's tile lies
  T** targets;          // of each instruction: the output to write directly, or null
  T* slots;

  T* slot(int i) const { return slots + i * kCapacity<T>; }
};

template <typename T>
TileProgram<T>::TileProgram(const ElementwiseProgram& program, std::span<const TensorSpec> inputs,
                            std::span<const TensorSpec> outputs) {
  COHORT_CHECK(inputs.size() == static_cast<size_t>(program.num_inputs));
  COHORT_CHECK(outputs.size() == program.outputs.size() && !outputs.empty());
  const Shape& shape = outputs[0].shape;
  size_ = shape.num_elements();
  for (const auto& spec : inputs)
    inputs_.push_back(
        {BroadcastView(spec.shape, shape), spec.dtype, tile_converter<T>(spec.dtype), false, 0, 0});
  for (const auto& i : program.instructions) {
    const auto function = tile_function<T>(i.op);
    if (function == nullptr)
      fail(Code::kUnimplemented, scalar_name(i.op), " does not support ", inputs[0].dtype);
    instructions_.push_back(
        {function, static_cast<int>(i.a), static_cast<int>(i.b), static_cast<int>(i.c), 0});
  }
  for (size_t i = 0; i < outputs.size(); ++i)
    outputs_.push_back({static_cast<int>(program.outputs[i]), outputs[i].dtype,
                        tile_converter<T>(outputs[i].dtype)});
  choose_tile_size();
  assign_slots(program);
}

// A tile of whole periods makes a repeated input (a bias, a scalar) look the same in every tile.
template <typename T>
void TileProgram<T>::choose_tile_size() {
  int64_t period = 1;
  for (const auto& input : inputs_)
    if (input.view.period() <= kCapacity<T>) period = std::max(period, input.view.period());
  tile_size_ = kCapacity<T> / period * period;
  for (auto& input : inputs_) {
    const int64_t p = input.view.period();
    input.repeats_each_tile = p > 0 && p < size_ && tile_size_ % p == 0;
  }
}

// Registers share slots where their lifetimes allow. An instruction may write over an operand that
// it is the last to read.
template <typename T>
void TileProgram<T>::assign_slots(const ElementwiseProgram& program) {
  const std::vector<int> last = last_uses(program);
  const int num_inputs = program.num_inputs, count = static_cast<int>(instructions_.size());
  std::vector<int> free_slots;
  const auto take = [&] {
    if (free_slots.empty()) return num_slots_++;
    const int slot = free_slots.back();
    free_slots.pop_back();
    return slot;
  };
  // Slots by the instruction that is the last to read them.
  std::vector<std::vector<int>> dying(count + 1);
  for (int i = 0; i < num_inputs; ++i) {
    inputs_[i].slot = take();
    inputs_[i].last_use = last[i];
    if (!inputs_[i].repeats_each_tile && last[i] >= 0) dying[last[i]].push_back(inputs_[i].slot);
  }
  for (int i = 0; i < count; ++i) {
    free_slots.insert(free_slots.end(), dying[i].begin(), dying[i].end());
    instructions_[i].slot = take();
    const int reader = last[num_inputs + i];
    (reader < 0 ? free_slots : dying[reader]).push_back(instructions_[i].slot);
  }
}

template <typename T>
size_t TileProgram<T>::pointer_bytes() const {
  return aligned_size((inputs_.size() + 2 * instructions_.size()) * sizeof(T*));
}

template <typename T>
size_t TileProgram<T>::scratch_bytes() const {
  return pointer_bytes() + aligned_size(num_slots_ * kCapacity<T> * sizeof(T));
}

template <typename T>
typename TileProgram<T>::Workspace TileProgram<T>::split_scratch(void* scratch) const {
  auto* registers = static_cast<const T**>(scratch);
  auto* targets = static_cast<T**>(scratch) + inputs_.size() + instructions_.size();
  void* slots = static_cast<char*>(scratch) + pointer_bytes();
  return {registers, targets, static_cast<T*>(slots)};
}

// An instruction writes an output of type T directly, unless that memory is an input that is still
// needed.
template <typename T>
void TileProgram<T>::choose_targets(const void* const* inputs, void* const* outputs,
                                    const Workspace& w) const {
  std::fill_n(w.targets, instructions_.size(), nullptr);
  for (size_t o = 0; o < outputs_.size(); ++o) {
    const int instruction = outputs_[o].source - static_cast<int>(inputs_.size());
    if (instruction < 0 || outputs_[o].dtype != dtype_of<T>) continue;
    bool needed = false;
    for (size_t i = 0; i < inputs_.size(); ++i)
      needed |= inputs[i] == outputs[o] && inputs_[i].last_use > instruction;
    if (!needed) w.targets[instruction] = static_cast<T*>(outputs[o]);
  }
}

template <typename T>
const T* TileProgram<T>::load(const Input& input, const void* source, int64_t begin, int64_t n,
                              T* slot) const {
  const T* where = slot;
  input.view.for_each_run(begin, n, [&](int64_t offset, int64_t stride, int64_t length) {
    if (input.dtype == dtype_of<T> && stride == 1 && length == n) {
      where = static_cast<const T*>(source) + offset;
    } else {
      input.converter.load(source, offset, stride, slot, length);
      slot += length;
    }
  });
  return where;
}

// While a tile is computed, what the next one reads and writes over comes as this core's own:
// weights that other cores have read would, fetched to be read, have to be asked for twice.
template <typename T>
void TileProgram<T>::prefetch_in_place(int64_t begin, int64_t n, const void* const* inputs,
                                       const Workspace& w) const {
  constexpr int64_t kLine = kCacheLine / sizeof(T);
  for (size_t i = 0; i < instructions_.size(); ++i) {
    const T* const target = w.targets[i];
    if (std::find(inputs, inputs + inputs_.size(), target) == inputs + inputs_.size()) continue;
    for (int64_t k = begin; k < begin + n; k += kLine) prefetch(target + k, true);
  }
}

template <typename T>
void TileProgram<T>::run_tile(int64_t begin, int64_t n, const void* const* inputs,
                              void* const* outputs, const Workspace& w) const {
  for (size_t i = 0; i < inputs_.size(); ++i)
    if (!inputs_[i].repeats_each_tile)
      w.registers[i] = load(inputs_[i], inputs[i], begin, n, w.slot(inputs_[i].slot));
  for (size_t i = 0; i < instructions_.size(); ++i) {
    const Instruction& x = instructions_[i];
    T* out = w.targets[i] != nullptr ? w.targets[i] + begin : w.slot(x.slot);
    x.function(w.registers[x.a], w.registers[x.b], w.registers[x.c], out, n);
    w.registers[inputs_.size() + i] = out;
  }
  for (size_t o = 0; o < outputs_.size(); ++o) {
    const T* tile = w.registers[outputs_[o].source];
    const bool in_place =
        outputs_[o].dtype == dtype_of<T> && tile == static_cast<T*>(outputs[o]) + begin;
    if (!in_place) outputs_[o].converter.store(tile, outputs[o], begin, n);
  }
}

template <typename T>
void TileProgram<T>::run(int64_t begin, int64_t end, const void* const* inputs,
                         void* const* outputs, void* scratch) const {
  if (begin >= end) return;
  const Workspace w = split_scratch(scratch);
  choose_targets(inputs, outputs, w);
  for (size_t i = 0; i < inputs_.size(); ++i)
    if (inputs_[i].repeats_each_tile)
      w.registers[i] =
          load(inputs_[i], inputs[i], 0, std::min(tile_size_, size_), w.slot(inputs_[i].slot));
  for (int64_t tile = begin; tile < end; ++tile) {
    const int64_t first = tile * tile_size_, next = first + tile_size_;
    if (tile + 1 < end) prefetch_in_place(next, std::min(tile_size_, size_ - next), inputs, w);
    run_tile(first, std::min(tile_size_, size_ - first), inputs, outputs, w);
  }
}

template <typename T>
bool TileProgram<T>::can_run_in_place(int output, int input) const {
  const Input& in = inputs_[input];
  const bool other_output_is_input =
      std::any_of(outputs_.begin(), outputs_.end(),
                  [&](const Output& o) { return o.source == input && &o != &outputs_[output]; });
  return in.view.same_order() && in.dtype == outputs_[output].dtype && !other_output_is_input;
}

template class TileProgram<float>;
template class TileProgram<double>;
template class TileProgram<int64_t>;

}  // namespace cohort
