#include "strategies/collective/shared_card/shared_card_library.h"

#include <algorithm>
#include <barrier>
#include <exception>
#include <functional>
#include <map>
#include <mutex>
#include <vector>

#include "core/kernels/kernel.h"
#include "core/tensor/elementwise_program.h"

namespace cohort {

// The calls that are under way, of all ranks. Each reads the others' segments and memory, so that
// none may leave before all have done with them, be it by an error.
class SharedCardLibrary::Meeting {
 public:
  explicit Meeting(int ranks) : calls(static_cast<size_t>(ranks)), done_(ranks) {}

  // Runs `work` of one rank, and returns when every rank has done its own: nothing in it may wait
  // for another rank. Throws, to all, the first error of any.
  void run(const std::function<void()>& work) {
    try {
      work();
    } catch (...) {
      const std::lock_guard lock(mutex_);
      if (!failure_) failure_ = std::current_exception();
    }
    done_.arrive_and_wait();
    const std::lock_guard lock(mutex_);
    if (failure_) std::rethrow_exception(failure_);
  }

  std::vector<AllReduceCall> calls;  // by rank

 private:
  std::barrier<> done_;
  std::mutex mutex_;
  std::exception_ptr failure_;  // for good: the group is then closed
};

namespace {

// What `ranks` inputs add up to, once for each of as many outputs.
ElementwiseProgram sums_for(int ranks) {
  ElementwiseProgram program{.num_inputs = ranks, .instructions = {}, .outputs = {}};
  int64_t sum = 0;
  for (int64_t next = 1; next < ranks; ++next) {
    program.instructions.push_back({Scalar::kAdd, sum, next});
    sum = ranks + next - 1;
  }
  program.outputs.assign(static_cast<size_t>(ranks), sum);
  return program;
}

// A kernel that adds up pieces of these sizes, for all ranks.
struct Sum {
  std::unique_ptr<Kernel> kernel;
  std::shared_ptr<Buffer> scratch;

  Sum(const std::vector<int64_t>& sizes, DType dtype, int ranks, Device device) {
    std::vector<TensorSpec> pieces;
    for (const int64_t size : sizes)
      pieces.insert(pieces.end(), static_cast<size_t>(ranks), {dtype, Shape{size}});
    const Attributes attributes = {{"program", sums_for(ranks).encode()},
                                   {"groups", static_cast<int64_t>(sizes.size())}};
    kernel = make_kernel({"MultiElementwise", pieces, pieces, attributes, device});
    scratch = device_backend(device.type)
                  .allocate(device, kernel->scratch_bytes(), "adding up the values of replicas");
  }
};

class SharedCardCollectives final : public DeviceCollectives {
 public:
  SharedCardCollectives(std::shared_ptr<SharedCardLibrary::Meeting> meeting,
                        const DeviceLibrary::Membership& m)
      : meeting_(std::move(meeting)),
        rank_(m.rank),
        size_(m.size),
        device_(m.device),
        limit_(m.limit),
        gate_(m.gate) {}

  bool can_run(const Call& call) const override {
    const auto* all_reduce = std::get_if<AllReduceCall>(&call);
    return all_reduce != nullptr && all_reduce->op == ReduceOp::kSum &&
           is_floating(all_reduce->dtype);
  }

  // Behind the gate each rank's stream has passed what it was handed before.
  void start(const Call& call, Stream& stream, const void*) override {
    const auto& own = std::get<AllReduceCall>(call);
    for (const Segment& s : own.segments)
      stream.copy_within_device(s.source, s.target, bytes_of(s.count, own.dtype));
    stream.synchronize();
    meeting_->calls[static_cast<size_t>(rank_)] = own;
    gate_->pass(describe(call), limit_, [&] {
      meeting_->run([&] {
        require_same_calls();
        add_up(own, stream);
        stream.synchronize();
      });
    });
  }

  void wait(const void*, Stream&) override {}  // it is over when `start` returns
  void check() override {}                     // which has thrown what went wrong
  void abort(const Error& error) override { gate_->close(error); }

 private:
  static size_t bytes_of(int64_t count, DType dtype) {
    return static_cast<size_t>(count) * dtype_size(dtype);
  }

  void require_same_calls() const {
    const Call first = meeting_->calls[0];
    for (int r = 1; r < size_; ++r)
      if (const Call other = meeting_->calls[static_cast<size_t>(r)]; !same(first, other))
        throw mismatch(std::nullopt, 0, describe(first), r, describe(other));
  }

  // Where this rank's share of `count` elements begins and ends.
  std::pair<int64_t, int64_t> share_of(int64_t count) const {
    constexpr int64_t kGranule = 64;
    const int64_t each = (count / size_ + kGranule) / kGranule * kGranule;
    return {std::min(count, rank_ * each), std::min(count, (rank_ + 1) * each)};
  }

  void add_up(const AllReduceCall& own, Stream& stream) {
    std::vector<int64_t> sizes;
    std::vector<void*> pieces;
    for (size_t i = 0; i < own.segments.size(); ++i) {
      const auto [begin, end] = share_of(own.segments[i].count);
      if (begin == end) continue;
      sizes.push_back(end - begin);
      for (const AllReduceCall& call : meeting_->calls)
        pieces.push_back(static_cast<char*>(call.segments[i].target) + bytes_of(begin, own.dtype));
    }
    if (sizes.empty()) return;
    const Sum& sum = sum_of(sizes, own.dtype);
    const StepInfo step;
    const std::vector<const void*> inputs(pieces.begin(), pieces.end());
    KernelContext context{inputs, pieces, sum.scratch->data, step};
    context.stream = &stream;
    sum.kernel->run(context);
  }

  const Sum& sum_of(const std::vector<int64_t>& sizes, DType dtype) {
    auto& sum = sums_[{dtype, sizes}];
    if (sum == nullptr) sum = std::make_unique<Sum>(sizes, dtype, size_, device_);
    return *sum;
  }

  const std::shared_ptr<SharedCardLibrary::Meeting> meeting_;
  const int rank_, size_;
  const Device device_;
  const std::optional<std::chrono::milliseconds> limit_;
  const std::shared_ptr<LaunchGate> gate_;
  std::map<std::pair<DType, std::vector<int64_t>>, std::unique_ptr<Sum>> sums_;  // made so far
};

}  // namespace

SharedCardLibrary::SharedCardLibrary(int ranks) : meeting_(std::make_shared<Meeting>(ranks)) {}

std::unique_ptr<DeviceCollectives> SharedCardLibrary::join(const Membership& membership) {
  COHORT_CHECK(membership.size == static_cast<int>(meeting_->calls.size()));
  return std::make_unique<SharedCardCollectives>(meeting_, membership);
}

}  // namespace cohort
