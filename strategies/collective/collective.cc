#include "strategies/collective/collective.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <numeric>
#include <optional>
#include <utility>

#include "core/base/comma_separated.h"
#include "core/collective/split.h"
#include "strategies/collective/all_reduce_calls.h"
#include "strategies/collective/tensor_header.h"

namespace cohort::collective {
namespace {

size_t at(int rank) { return static_cast<size_t>(rank); }

int64_t bytes_of(const TensorSpec& spec) { return static_cast<int64_t>(spec.bytes()); }

size_t total(const std::vector<int64_t>& sizes) {
  return static_cast<size_t>(std::accumulate(sizes.begin(), sizes.end(), int64_t{0}));
}

// How many of `rows` each rank gets.
std::vector<int64_t> divided(int64_t rows, int size) {
  std::vector<int64_t> parts;
  for (int r = 0; r < size; ++r) parts.push_back(rows / size + (r < rows % size ? 1 : 0));
  return parts;
}

void scale(std::vector<int64_t>& parts, int64_t factor) {
  for (int64_t& part : parts) part *= factor;
}

// Ends the group where `rows` are not those of the tensor.
void check_division(Communicator& group, const TensorSpec& spec, std::span<const int64_t> rows) {
  if (std::ssize(rows) == group.size() && std::ranges::min(rows) >= 0 &&
      std::accumulate(rows.begin(), rows.end(), int64_t{0}) == spec.shape[0])
    return;
  const Error mistake(Code::kInvalidArgument,
                      str("rank ", group.rank(), " divides ", spec, " among ", group.size(),
                          " ranks into ", comma_separated(rows), " rows"));
  group.abort(mistake);
  throw mistake;
}

// Of all ranks; what may be put one behind the other.
std::vector<TensorSpec> exchange_rows(Communicator& group, std::string_view topic,
                                      const Tensor& value) {
  auto specs = exchange_specs(group, topic, value);
  const TensorSpec& first = specs[0];
  for (int r = 0; r < group.size(); ++r) {
    const TensorSpec& spec = specs[at(r)];
    if (spec.shape.rank() == 0)
      invalid("rank ", r, " gave a scalar, which cannot be gathered along an axis");
    if (spec.dtype != first.dtype || spec.shape.rank() != first.shape.rank() ||
        spec.shape.with_dim(0, first.shape[0]) != first.shape)
      invalid("tensors that are gathered may differ in the first axis alone, but rank 0 gave ",
              first, " and rank ", r, " gave ", spec);
  }
  return specs;
}

Tensor joined(const std::vector<TensorSpec>& specs) {
  int64_t rows = 0;
  for (const TensorSpec& spec : specs) rows += spec.shape[0];
  return Tensor(specs[0].dtype, specs[0].shape.with_dim(0, rows));
}

std::vector<int64_t> sizes_of(const std::vector<TensorSpec>& specs) {
  std::vector<int64_t> sizes;
  for (const TensorSpec& spec : specs) sizes.push_back(bytes_of(spec));
  return sizes;
}

// Of the root's tensor.
TensorSpec broadcast_spec(Communicator& group, std::string_view topic, const Tensor& value,
                          int root) {
  TensorHeader header = header_of(value);
  group.broadcast(&header, &header, sizeof header, root, topic);
  return spec_of(header, root);
}

// That all ranks give a tensor for each rank, or the same error on all.
void check_parts(Communicator& group, const std::vector<Tensor>& values) {
  struct Given {
    int64_t count, defined;  // tensors, and those ahead of the first that is not defined
  };
  const auto undefined = std::ranges::find_if_not(values, &Tensor::defined);
  const Given own = {std::ssize(values), undefined - values.begin()};
  const std::vector<Given> all = tell_all(group, "all_to_all", own);
  for (int r = 0; r < group.size(); ++r) {
    const auto [count, defined] = all[at(r)];
    if (count != group.size())
      invalid("an all-to-all takes a tensor for each of the ", group.size(), " ranks, but rank ", r,
              " gave ", count);
    if (defined != count)
      invalid("an all-to-all takes a tensor for each of the ranks, but the one of rank ", r,
              " for rank ", defined, " is not defined");
  }
}

void check_size(int64_t bytes, int rank) {
  if (bytes < 0 || bytes > kMostBytes)
    invalid("rank ", rank, " gave ", bytes, " bytes; allowed are 0 to ", kMostBytes);
}

}  // namespace

Tensor all_reduce(Communicator& group, const Tensor& value, ReduceOp op) {
  return start_all_reduce(group, value, op).wait();
}

std::vector<Tensor> all_reduce(Communicator& group, std::span<const Tensor> values, ReduceOp op) {
  return start_all_reduce(group, values, op).wait();
}

Tensor reduce(Communicator& group, const Tensor& value, int root, ReduceOp op) {
  Tensor result;
  if (group.rank() == root) result = Tensor(value.dtype(), value.shape());
  group.run(ReduceCall{value.raw(), result.raw(), value.num_elements(), value.dtype(), op, root,
                       &value.shape()});
  return result;
}

Tensor reduce_scatter(Communicator& group, const Tensor& value, ReduceOp op) {
  const int64_t rows = value.shape().rank() > 0 ? value.shape()[0] : 0;
  return reduce_scatter(group, value, divided(rows, group.size()), op);
}

Tensor reduce_scatter(Communicator& group, const Tensor& value, std::span<const int64_t> rows,
                      ReduceOp op) {
  const Shape& shape = value.shape();
  std::vector<int64_t> counts(rows.begin(), rows.end());
  Tensor result;
  if (shape.rank() > 0) {  // else the call is refused, on all ranks
    check_division(group, value.spec(), rows);
    result = Tensor(value.dtype(), shape.with_dim(0, rows[at(group.rank())]));
    scale(counts, shape.count(1, shape.rank()));
  }
  group.run(ReduceScatterCall{value.raw(), result.raw(), counts, value.dtype(), op, &shape});
  return result;
}

Tensor broadcast(Communicator& group, const Tensor& value, int root) {
  const TensorSpec spec = broadcast_spec(group, "broadcast", value, root);
  Tensor result(spec.dtype, spec.shape);
  group.broadcast(value.raw(), result.raw(), bytes_of(spec), root);
  return result;
}

Tensor all_gather(Communicator& group, const Tensor& value) {
  const auto specs = exchange_rows(group, "all_gather", value);
  Tensor result = joined(specs);
  group.all_gather(value.raw(), result.raw(), sizes_of(specs));
  return result;
}

Tensor gather(Communicator& group, const Tensor& value, int root) {
  const auto specs = exchange_rows(group, "gather", value);
  Tensor result;
  if (group.rank() == root) result = joined(specs);
  group.gather(value.raw(), result.raw(), sizes_of(specs), root);
  return result;
}

Tensor scatter(Communicator& group, const Tensor& value, int root) {
  const TensorSpec spec = broadcast_spec(group, "scatter", value, root);
  if (spec.shape.rank() == 0)
    invalid("rank ", root, " gave a scalar, which has no rows to divide among the ranks");
  auto parts = divided(spec.shape[0], group.size());
  Tensor result(spec.dtype, spec.shape.with_dim(0, parts[at(group.rank())]));
  scale(parts,
        spec.shape.count(1, spec.shape.rank()) * static_cast<int64_t>(dtype_size(spec.dtype)));
  group.scatter(value.raw(), result.raw(), parts, root);
  return result;
}

std::vector<Tensor> all_to_all(Communicator& group, const std::vector<Tensor>& values) {
  check_parts(group, values);
  const auto size = at(group.size());
  std::vector<TensorHeader> own, others(size);
  for (const Tensor& value : values) own.push_back(header_of(value));
  const std::vector<int64_t> of_headers(size, int64_t{sizeof(TensorHeader)});
  group.all_to_all(own.data(), of_headers, others.data(), of_headers);
  std::vector<int64_t> sent, received;
  std::vector<Tensor> results;
  for (size_t r = 0; r < size; ++r) {
    const TensorSpec spec = spec_of(others[r], static_cast<int>(r));
    results.emplace_back(spec.dtype, spec.shape);
    sent.push_back(static_cast<int64_t>(values[r].bytes()));
    received.push_back(bytes_of(spec));
  }
  std::vector<char> source(total(sent)), target(total(received));
  size_t place = 0;
  for (const Tensor& value : values) {
    if (value.bytes() > 0) std::memcpy(source.data() + place, value.raw(), value.bytes());
    place += value.bytes();
  }
  group.all_to_all(source.data(), sent, target.data(), received);
  place = 0;
  for (Tensor& result : results) {
    if (result.bytes() > 0) std::memcpy(result.raw(), target.data() + place, result.bytes());
    place += result.bytes();
  }
  return results;
}

void barrier(Communicator& group) { group.barrier(); }

void send(Communicator& group, const Tensor& value, int destination, int tag) {
  start_send(group, value, destination, tag).wait();
}

Message receive(Communicator& group, int source, int tag) {
  TensorHeader header;
  const Received received = group.receive(&header, sizeof header, source, tag);
  if (received.bytes != sizeof header)
    fail(Code::kDataLoss, "rank ", received.source, " has sent what describes no tensor");
  const TensorSpec spec = spec_of(header, received.source);
  Message message{Tensor(spec.dtype, spec.shape), received.source, received.tag};
  group.receive(message.value.raw(), bytes_of(spec), message.source, message.tag);
  return message;
}

struct PendingTensors::Work {
  Work(Communicator& group, std::span<const Tensor> values)
      : group(group), values(values.begin(), values.end()) {}
  ~Work() {
    // Those who wait for what would have come next would never be told.
    if (std::uncaught_exceptions() > exceptions && !is_done())
      group.abort(Error(Code::kAborted,
                        str("rank ", group.rank(), " has ended because of an error of its own")));
    while (!operations.empty()) {
      try {
        finish_one();
      } catch (const Error&) {  // the group has ended, which its next call tells
      }
    }
  }
  Work(const Work&) = delete;
  Work& operator=(const Work&) = delete;

  void finish_one() {
    const int64_t operation = operations.back();
    operations.pop_back();
    group.wait(operation);
  }
  bool is_done() const {
    return std::ranges::all_of(operations,
                               [&](int64_t operation) { return group.is_done(operation); });
  }

  const int exceptions = std::uncaught_exceptions();  // those that are not of what it is in
  Communicator& group;
  const std::vector<Tensor> values;
  std::vector<Tensor> results;
  std::optional<AllReduceCalls> reductions;
  TensorHeader header;              // of a send
  std::vector<int64_t> operations;  // not waited for
};

PendingTensors::PendingTensors(std::unique_ptr<Work> work) : work_(std::move(work)) {}
PendingTensors::PendingTensors(PendingTensors&&) noexcept = default;
PendingTensors::~PendingTensors() = default;

PendingTensors& PendingTensors::operator=(PendingTensors other) noexcept {
  std::swap(work_, other.work_);
  return *this;
}

std::vector<Tensor> PendingTensors::wait() {
  if (work_ == nullptr) fail(Code::kFailedPrecondition, "what was started is waited for once");
  const std::unique_ptr<Work> work = std::move(work_);
  while (!work->operations.empty()) work->finish_one();
  return std::move(work->results);
}

bool PendingTensors::is_done() const { return work_ == nullptr || work_->is_done(); }

PendingTensors start_all_reduce(Communicator& group, std::span<const Tensor> values, ReduceOp op) {
  auto work = std::make_unique<PendingTensors::Work>(group, values);
  for (const Tensor& value : values) work->results.emplace_back(value.dtype(), value.shape());
  work->reductions.emplace(work->values, work->results, op);
  for (const AllReduceCall& call : work->reductions->calls())
    work->operations.push_back(group.start(call));
  return PendingTensors(std::move(work));
}

Pending start_all_reduce(Communicator& group, const Tensor& value, ReduceOp op) {
  return Pending(start_all_reduce(group, {&value, 1}, op));
}

// What describes the tensor goes before it, under the same tag.
Pending start_send(Communicator& group, const Tensor& value, int destination, int tag) {
  if (!value.defined()) invalid("a tensor that is sent has to be defined");
  auto work = std::make_unique<PendingTensors::Work>(group, std::span(&value, 1));
  work->results = work->values;
  work->header = header_of(value);
  work->operations.push_back(
      group.start_send({&work->header, sizeof work->header, destination, tag}));
  work->operations.push_back(
      group.start_send({value.raw(), static_cast<int64_t>(value.bytes()), destination, tag}));
  return Pending(PendingTensors(std::move(work)));
}

std::string broadcast_bytes(Communicator& group, std::string_view bytes, int root) {
  auto size = static_cast<int64_t>(bytes.size());
  group.broadcast(&size, &size, sizeof size, root, "broadcast_bytes");
  check_size(size, root);
  std::string result(static_cast<size_t>(size), '\0');
  group.broadcast(bytes.data(), result.data(), size, root);
  return result;
}

std::vector<std::string> all_gather_bytes(Communicator& group, std::string_view bytes) {
  const std::vector<int64_t> sizes =
      tell_all(group, "all_gather_bytes", static_cast<int64_t>(bytes.size()));
  for (int r = 0; r < group.size(); ++r) check_size(sizes[at(r)], r);
  std::string joined(total(sizes), '\0');
  group.all_gather(bytes.data(), joined.data(), sizes);
  std::vector<std::string> results;
  size_t place = 0;
  for (const int64_t size : sizes) {
    results.push_back(joined.substr(place, static_cast<size_t>(size)));
    place += static_cast<size_t>(size);
  }
  return results;
}

}  // namespace cohort::collective
