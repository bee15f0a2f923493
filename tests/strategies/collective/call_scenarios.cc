#include <algorithm>
#include <cstring>
#include <numeric>

#include "core/collective/reduction.h"
#include "tests/strategies/collective/scenarios.h"

namespace cohort::testing {
namespace {

using Bytes = std::shared_ptr<Buffer>;

// Memory of a rank: registered, or its own, which others cannot see.
struct Memory {
  Communicator& communicator;
  bool registered;

  Bytes operator()(int64_t bytes) const {
    const auto size = static_cast<size_t>(std::max<int64_t>(bytes, 1));
    return registered ? communicator.allocate(size) : allocate_host_buffer(size);
  }
};

char* at(const Bytes& memory, int64_t offset = 0) {
  return static_cast<char*>(memory->data) + offset;
}

// Numbers of a rank that no other has, and whose sums depend on the order.
void fill(void* memory, int64_t count, DType dtype, int rank, int salt = 0) {
  dispatch(NumberTypes{}, dtype, "fill", [&]<typename T>() {
    T* const values = static_cast<T*>(memory);
    for (int64_t i = 0; i < count; ++i) {
      const int64_t mixed = (i * 7919 + rank * 104729 + salt * 31) % 1013;
      values[i] = std::is_integral_v<T> ? static_cast<T>(mixed)
                                        : static_cast<T>(static_cast<float>(mixed) / 97.0f - 3.0f);
    }
  });
}

Bytes filled(int64_t count, DType dtype, int rank, int salt = 0) {
  const Bytes memory = allocate_host_buffer(static_cast<size_t>(count) * dtype_size(dtype) + 1);
  fill(memory->data, count, dtype, rank, salt);
  return memory;
}

// What all ranks' numbers give.
Bytes combined(int64_t count, DType dtype, ReduceOp op, int size, int salt = 0) {
  std::vector<Bytes> memory;
  std::vector<const void*> sources;
  for (int r = 0; r < size; ++r) {
    memory.push_back(filled(count, dtype, r, salt));
    sources.push_back(memory.back()->data);
  }
  const Bytes result = filled(count, dtype, 0);
  void* const target = result->data;
  reduce_elements(op, dtype, sources, {&target, 1}, 0, count);
  return result;
}

void expect_bytes(const void* found, const void* expected, int64_t bytes, const std::string& what) {
  expect(std::memcmp(found, expected, static_cast<size_t>(bytes)) == 0, what);
}

void all_reduce(Communicator& c, const Memory& allocate, int64_t count, DType dtype, ReduceOp op) {
  const auto element = static_cast<int64_t>(dtype_size(dtype));
  const Bytes expected = combined(count, dtype, op, c.size());
  const std::string what = str("all-reduce of ", count, " ", dtype);
  const Bytes memory = allocate(count * element);
  fill(memory->data, count, dtype, c.rank());
  const Segment in_place{memory->data, memory->data, count};
  c.all_reduce({&in_place, 1}, dtype, op);
  expect_bytes(memory->data, expected->data, count * element, what + " in place");
  // In pieces that lie apart, to a place of their own, which one rank does not want.
  const Bytes source = allocate(count * element + 3 * 64), target = allocate(count * element);
  const Bytes own = filled(count, dtype, c.rank());
  std::vector<Segment> segments;
  for (int64_t i = 0, begin = 0; i < 3; ++i) {
    const int64_t end = i == 2 ? count : count * (i + 1) / 3;
    char* const from = at(source, begin * element + 64 * i);
    std::memcpy(from, at(own, begin * element), static_cast<size_t>((end - begin) * element));
    const bool wanted = c.rank() != c.size() - 1 || i == 1;
    segments.push_back({from, wanted ? at(target, begin * element) : nullptr, end - begin});
    begin = end;
  }
  c.all_reduce(segments, dtype, op);
  for (const Segment& segment : segments) {
    if (segment.target == nullptr) continue;
    const int64_t begin = static_cast<char*>(segment.target) - at(target);
    expect_bytes(segment.target, at(expected, begin), segment.count * element, what + " in parts");
  }
}

void reduce(Communicator& c, const Memory& allocate, int64_t count, DType dtype, ReduceOp op) {
  const int64_t bytes = count * static_cast<int64_t>(dtype_size(dtype));
  const Bytes expected = combined(count, dtype, op, c.size());
  for (int root = 0; root < c.size(); ++root) {
    const Bytes source = allocate(bytes), target = allocate(bytes);
    fill(source->data, count, dtype, c.rank());
    c.reduce(source->data, c.rank() == root ? target->data : nullptr, count, dtype, op, root);
    if (c.rank() == root) expect_bytes(target->data, expected->data, bytes, "reduce");
  }
}

void reduce_scatter(Communicator& c, const Memory& allocate, int64_t count, DType dtype,
                    ReduceOp op) {
  const auto element = static_cast<int64_t>(dtype_size(dtype));
  // Parts of 0, 1, 2, ... times as much.
  std::vector<int64_t> counts;
  for (int r = 0; r < c.size(); ++r) counts.push_back(r * count / c.size());
  const int64_t total = std::accumulate(counts.begin(), counts.end(), int64_t{0});
  const Bytes expected = combined(total, dtype, op, c.size());
  const auto own = static_cast<size_t>(c.rank());
  const int64_t begin =
      std::accumulate(counts.begin(), counts.begin() + c.rank(), int64_t{0}) * element;
  for (const bool in_place : {true, false}) {
    const Bytes source = allocate(total * element), target = allocate(counts[own] * element);
    fill(source->data, total, dtype, c.rank());
    char* const to = in_place ? at(source, begin) : at(target);
    c.reduce_scatter(source->data, to, counts, dtype, op);
    expect_bytes(to, at(expected, begin), counts[own] * element, "reduce-scatter");
  }
}

void copies(Communicator& c, const Memory& allocate, int64_t count) {
  const auto size = static_cast<size_t>(c.size());
  const DType dtype = DType::kUInt8;
  const int own = c.rank();
  for (int root = 0; root < c.size(); ++root) {
    const Bytes memory = allocate(count);
    fill(memory->data, count, dtype, own, root);
    c.broadcast(memory->data, memory->data, count, root);
    expect_bytes(memory->data, filled(count, dtype, root, root)->data, count, "broadcast");
  }
  std::vector<int64_t> bytes, offsets;
  int64_t total = 0;
  for (size_t r = 0; r < size; ++r) {
    offsets.push_back(total);
    bytes.push_back(count * static_cast<int64_t>((r + 1) % size));
    total += bytes.back();
  }
  const Bytes parts = allocate_host_buffer(static_cast<size_t>(total) + 1);
  for (size_t r = 0; r < size; ++r)
    fill(at(parts, offsets[r]), bytes[r], dtype, static_cast<int>(r));
  const auto me = static_cast<size_t>(own);

  const Bytes all = allocate(total);
  fill(at(all, offsets[me]), bytes[me], dtype, own);
  c.all_gather(at(all, offsets[me]), all->data, bytes);
  expect_bytes(all->data, parts->data, total, "all-gather");

  for (int root = 0; root < c.size(); ++root) {
    const Bytes mine = allocate(bytes[me]), target = allocate(total);
    fill(mine->data, bytes[me], dtype, own);
    c.gather(mine->data, target->data, bytes, root);
    if (own == root) expect_bytes(target->data, parts->data, total, "gather");
    const Bytes scattered = allocate(bytes[me]), source = allocate(total);
    if (own == root) std::memcpy(source->data, parts->data, static_cast<size_t>(total));
    c.scatter(source->data, scattered->data, bytes, root);
    expect_bytes(scattered->data, at(parts, offsets[me]), bytes[me], "scatter");
  }

  // From rank s to rank r go (s + 2 r) % 3 times as much.
  const auto amount = [&](size_t s, size_t r) {
    return count * static_cast<int64_t>((s + 2 * r) % 3);
  };
  std::vector<int64_t> send, receive;
  for (size_t r = 0; r < size; ++r) {
    send.push_back(amount(me, r));
    receive.push_back(amount(r, me));
  }
  const int64_t sent = std::accumulate(send.begin(), send.end(), int64_t{0});
  const int64_t received = std::accumulate(receive.begin(), receive.end(), int64_t{0});
  const Bytes from = allocate(sent), to = allocate(received);
  for (size_t r = 0, begin = 0; r < size; begin += static_cast<size_t>(send[r++]))
    fill(at(from, static_cast<int64_t>(begin)), send[r], dtype, own, static_cast<int>(r));
  c.all_to_all(from->data, send, to->data, receive);
  for (size_t s = 0, begin = 0; s < size; begin += static_cast<size_t>(receive[s++]))
    expect_bytes(at(to, static_cast<int64_t>(begin)),
                 filled(receive[s], dtype, static_cast<int>(s), own)->data, receive[s],
                 "all-to-all");
}

}  // namespace

void make_all_calls(Communicator& c) {
  // Nothing, less than there are ranks, what fits in a post, and what fills several staging areas.
  for (const bool registered : {false, true})
    for (const int64_t count : {0, 3, 2000, 70'001}) {
      const Memory allocate{c, registered};
      all_reduce(c, allocate, count, DType::kFloat32, ReduceOp::kSum);
      all_reduce(c, allocate, count, DType::kBFloat16, ReduceOp::kMean);
      all_reduce(c, allocate, count, DType::kInt64, ReduceOp::kBitXor);
      reduce(c, allocate, count, DType::kFloat64, ReduceOp::kSum);
      reduce_scatter(c, allocate, count, DType::kFloat32, ReduceOp::kSum);
      reduce_scatter(c, allocate, count, DType::kFloat16, ReduceOp::kMax);
      copies(c, allocate, 5 * count);
      c.barrier();
    }
  // What ranks take from each other block by block.
  all_reduce(c, {c, true}, 300'001 * c.size(), DType::kFloat32, ReduceOp::kSum);
}

void run_in_background(Communicator& c) {
  constexpr int kTensors = 16;
  constexpr int64_t kCount = 10'000;
  std::vector<Bytes> memory;
  std::vector<Segment> segments;
  std::vector<int64_t> operations;
  for (int i = 0; i < kTensors; ++i) {
    memory.push_back(c.allocate(kCount * sizeof(float)));
    fill(memory.back()->data, kCount, DType::kFloat32, c.rank(), i);
    segments.push_back({memory.back()->data, memory.back()->data, kCount});
  }
  for (int i = 0; i < kTensors; ++i)
    operations.push_back(c.start_all_reduce({&segments[static_cast<size_t>(i)], 1}, DType::kFloat32,
                                            ReduceOp::kSum));
  c.barrier();  // everything started before it has ended
  for (int i = 0; i < kTensors; ++i)
    expect_bytes(memory[static_cast<size_t>(i)]->data,
                 combined(kCount, DType::kFloat32, ReduceOp::kSum, c.size(), i)->data, kCount * 4,
                 "all-reduce in the background");
  for (int i = kTensors - 1; i >= 0; --i) c.wait(operations[static_cast<size_t>(i)]);
}

void replace_memory(Communicator& c) {
  constexpr int64_t kCount = 5000;
  const Bytes expected = combined(kCount, DType::kFloat32, ReduceOp::kSum, c.size());
  // More regions than a rank has slots, of which only one is there at a time on some ranks.
  std::vector<Bytes> kept;
  for (int i = 0; i < 150; ++i) {
    const Bytes memory = c.allocate(kCount * sizeof(float));
    fill(memory->data, kCount, DType::kFloat32, c.rank());
    const Segment segment{memory->data, memory->data, kCount};
    c.all_reduce({&segment, 1}, DType::kFloat32, ReduceOp::kSum);
    expect_bytes(memory->data, expected->data, kCount * 4, str("all-reduce in region ", i));
    if (c.rank() == 0) kept.push_back(memory);
  }
  for (const Bytes& memory : kept) {
    expect_bytes(memory->data, expected->data, kCount * 4, "kept memory");
    fill(memory->data, kCount, DType::kFloat32, c.rank());
  }
}

void split_groups(Communicator& c) {
  // Even and odd ranks, backwards; the last one in none.
  const bool apart = c.rank() == c.size() - 1 && c.size() > 1;
  const auto part = c.split(apart ? -1 : c.rank() % 2, -c.rank());
  expect((part == nullptr) == apart, "no group for a negative color");
  if (part) {
    const int members = (c.size() - (c.size() > 1 ? 1 : 0) + 1 - c.rank() % 2) / 2;
    expect(part->size() == members, str("a part of ", members, " ranks, got ", part->size()));
    expect(part->rank() == members - 1 - c.rank() / 2, str("rank ", part->rank(), " in its part"));
    const Memory allocate{*part, true};
    all_reduce(*part, allocate, 5000, DType::kFloat32, ReduceOp::kSum);
    copies(*part, allocate, 5000);
    exchange_messages(*part);
  }
  c.barrier();
}

void exchange_messages(Communicator& c) {
  // Everybody with everybody, small and large at once, tags in another order than sent.
  const std::vector<int64_t> sizes{0, 5, 900, 5000, 300'000};
  const auto kinds = static_cast<int>(sizes.size());
  std::vector<Bytes> memory;
  std::vector<int64_t> sends, receives;
  std::vector<Received> expected;
  for (int peer = 0; peer < c.size(); ++peer)
    for (int k = 0; peer != c.rank() && k < kinds; ++k) {
      const int64_t bytes = sizes[static_cast<size_t>(k)];
      memory.push_back(filled(bytes, DType::kUInt8, c.rank(), peer + k));
      sends.push_back(c.start_send({memory.back()->data, bytes, peer, k}));
    }
  const size_t first = memory.size();
  for (int k = kinds - 1; k >= 0; --k)
    for (int peer = 0; peer < c.size(); ++peer) {
      if (peer == c.rank()) continue;
      memory.push_back(allocate_host_buffer(300'001));
      receives.push_back(c.start_receive({memory.back()->data, 300'001, peer, k}));
      expected.push_back({peer, k, sizes[static_cast<size_t>(k)]});
    }
  c.barrier();  // collectives do not need messages to be waited for
  for (size_t i = 0; i < receives.size(); ++i) {
    const Received got = c.wait(receives[i]);
    expect(got.source == expected[i].source && got.tag == expected[i].tag &&
               got.bytes == expected[i].bytes,
           "source, tag and size of a message");
    expect_bytes(memory[first + i]->data,
                 filled(got.bytes, DType::kUInt8, got.source, c.rank() + got.tag)->data, got.bytes,
                 "a message");
  }
  for (const int64_t send : sends) c.wait(send);
  // From anybody, in order.
  if (c.rank() == 0) {
    std::vector<int> next(static_cast<size_t>(c.size()), 0);
    for (int i = 0; i < 20 * (c.size() - 1); ++i) {
      int value = -1;
      const Received got = c.receive(&value, sizeof(value));
      expect(value == next[static_cast<size_t>(got.source)]++, "messages of a sender in order");
    }
  } else {
    for (int i = 0; i < 20; ++i) c.send(&i, sizeof(i), 0, 7);
  }
  c.barrier();
}

}  // namespace cohort::testing
