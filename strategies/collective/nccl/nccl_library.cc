#include <array>
#include <atomic>
#include <cstring>
#include <cuda_runtime_api.h>
#include <functional>
#include <mutex>
#include <nccl.h>
#include <unordered_map>
#include <utility>

#include "core/base/backoff.h"
#include "core/base/notice.h"
#include "core/device/cuda/cuda_error.h"
#include "core/device/cuda/cuda_stream.h"
#include "core/device/cuda/gpus.h"
#include "strategies/collective/nccl/device_library.h"
#include "strategies/collective/nccl/host_name.h"
#include "strategies/collective/nccl/nccl_steps.h"
#include "strategies/collective/nccl/operation_watch.h"
#include "strategies/collective/nccl/registrations.h"

namespace cohort {
namespace {

Code code_of(ncclResult_t result) {
  switch (result) {
    case ncclInvalidArgument:
    case ncclInvalidUsage:
    case ncclInternalError:
      return Code::kInternal;
    default:
      return Code::kUnavailable;  // CUDA, the system, or another rank
  }
}

Error error_of(ncclResult_t result, ncclComm_t communicator, const std::string& what) {
  const char* detail = ncclGetLastError(communicator);
  return Error(code_of(result), str("NCCL: ", what, ": ", ncclGetErrorString(result),
                                    detail == nullptr || detail[0] == '\0' ? "" : ": ",
                                    detail == nullptr ? "" : detail));
}

void check_nccl(ncclResult_t result, const char* call) {
  if (result != ncclSuccess) throw error_of(result, nullptr, call);
}

ncclDataType_t nccl_type(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return ncclFloat32;
    case DType::kFloat64:
      return ncclFloat64;
    case DType::kBFloat16:
      return ncclBfloat16;
    case DType::kFloat16:
      return ncclFloat16;
    case DType::kInt32:
      return ncclInt32;
    case DType::kInt64:
      return ncclInt64;
    case DType::kUInt8:
      return ncclUint8;
    default:
      fail(Code::kUnimplemented, "NCCL has no ", dtype);
  }
}

ncclRedOp_t nccl_op(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
      return ncclSum;
    case ReduceOp::kMean:
      return ncclAvg;
    case ReduceOp::kMin:
      return ncclMin;
    case ReduceOp::kMax:
      return ncclMax;
    case ReduceOp::kProduct:
      return ncclProd;
    default:
      fail(Code::kUnimplemented, "NCCL has no ", reduce_op_name(op));
  }
}

ncclResult_t submit(const NcclStep& s, ncclComm_t communicator, cudaStream_t stream) {
  const auto count = static_cast<size_t>(s.count);
  const ncclDataType_t type = nccl_type(s.dtype);
  switch (s.kind) {
    case NcclStep::Kind::kAllReduce:
      return ncclAllReduce(s.source, s.target, count, type, nccl_op(s.op), communicator, stream);
    case NcclStep::Kind::kReduce:
      return ncclReduce(s.source, s.target, count, type, nccl_op(s.op), s.root, communicator,
                        stream);
    case NcclStep::Kind::kReduceScatter:
      return ncclReduceScatter(s.source, s.target, count, type, nccl_op(s.op), communicator,
                               stream);
    case NcclStep::Kind::kBroadcast:
      return ncclBroadcast(s.source, s.target, count, type, s.root, communicator, stream);
    case NcclStep::Kind::kAllGather:
      return ncclAllGather(s.source, s.target, count, type, communicator, stream);
  }
  return ncclInvalidUsage;
}

// Memory of NCCL's allocator, of which it gives whole pages.
constexpr size_t kPage = size_t{2} << 20;

size_t whole_pages(size_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

void* take_memory(size_t bytes) {
  void* memory = nullptr;
  if (ncclMemAlloc(&memory, bytes) == ncclSuccess) return memory;
  cudaGetLastError();
  return nullptr;
}

// Never ended: it may be given back when static objects are gone.
LentMemory& lent_memory() {
  static auto* lent = new LentMemory;
  return *lent;
}

// One rank's communicator, on a stream of its own. It is non-blocking: no call of NCCL waits for
// others, so that the limits here hold.
class NcclCollectives final : public DeviceCollectives {
 public:
  explicit NcclCollectives(const DeviceLibrary::Membership& membership)
      : device_(membership.device),
        card_(Gpus::instance().use(device_).card()),
        rank_(membership.rank),
        limit_(membership.limit),
        gate_(membership.gate),
        stream_(make_cuda_stream(device_)) {
    Gpus::instance().open_to_others(device_);
    enter_gpu(device_);
    COHORT_CUDA(device_, cudaEventCreateWithFlags(&ready_, cudaEventDisableTiming));
    std::shared_ptr<Buffer> memory;  // until nothing is under way
    try {
      join(membership);
      memory = device_backend(device_.type).allocate(device_, sizeof(Trial), kTrial);
      try_out(membership, memory->data, can_register());
      watch(membership);
    } catch (const std::exception& error) {
      // Others of this process may wait there.
      gate_->close(
          Error(Code::kUnavailable, str("rank ", rank_, " (", device_, "): ", error.what())));
      end();
      drain();
      release();
      throw;
    }
  }

  ~NcclCollectives() override {
    cudaSetDevice(card_);  // else a new thread would take card 0 into use
    watch_->stop();
    leave();
    drain();
    release();
  }

  bool can_run(const Call& call) const override { return nccl_steps(call, rank_).has_value(); }

  std::shared_ptr<Buffer> allocate(size_t bytes) override {
    if (!registers_) return nullptr;
    registrations_.remove_unused();
    return lent_memory().lend(Gpus::instance().use(device_).allocate(
        whole_pages(bytes), "a function's buckets", {take_memory, ncclMemFree}));
  }

  void start(const Call& call, Stream& stream, const void* token) override {
    watch_->check();
    const auto steps = nccl_steps(call, rank_);
    COHORT_CHECK(steps.has_value());
    const cudaStream_t computation = cuda_stream(stream);
    enter_gpu(device_);
    register_memory_of(*steps);
    Operation& operation = operation_of(token);
    const int64_t time = ++operation.times;
    COHORT_CUDA(device_, cudaEventRecord(ready_, computation));
    COHORT_CUDA(device_, cudaStreamWaitEvent(cuda_stream(*stream_), ready_, 0));
    COHORT_CUDA(device_, cudaEventRecord(operation.begun, cuda_stream(*stream_)));
    run_group(*steps, kind_of(call));
    COHORT_CUDA(device_, cudaEventRecord(operation.done, cuda_stream(*stream_)));
    operation.started = true;
    watch_->add(
        describe(call),
        [this, &operation, time] { return has_passed(operation, time, operation.done); },
        [this, &operation, time] { return has_passed(operation, time, operation.begun); });
  }

  void wait(const void* token, Stream& stream) override {
    watch_->check();
    const auto it = operations_.find(token);
    if (it == operations_.end() || !it->second->started) return;
    it->second->started = false;
    COHORT_CUDA(device_, cudaStreamWaitEvent(cuda_stream(stream), it->second->done, 0));
  }

  Stream* stream() override { return stream_.get(); }
  void check() override { watch_->check(); }
  void abort(const Error& error) override { watch_->fail(error); }

 private:
  // What a token has named; the memory stays, for the watch looks at it.
  struct Operation {
    cudaEvent_t begun = nullptr;  // behind the computation: what comes next waits for other ranks
    cudaEvent_t done = nullptr;
    bool started = false;            // and not waited for
    std::atomic<int64_t> times = 0;  // started; earlier ones are done, as steps end
  };
  // What ranks add up at first: a 1 of each, and of those for which NCCL registers memory.
  using Trial = std::array<float, 2>;
  using Clock = std::chrono::steady_clock;
  static constexpr auto kLeaveLimit = std::chrono::milliseconds(2'000);
  static constexpr std::string_view kTrial = "a first all-reduce";

  void join(const DeviceLibrary::Membership& membership) {
    ncclUniqueId id;
    COHORT_CHECK(membership.id.size() == sizeof(id));
    std::memcpy(&id, membership.id.data(), sizeof(id));
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    const ncclResult_t result =
        ncclCommInitRankConfig(&communicator_, membership.size, id, membership.rank, &config);
    finish(result, "joining the group", membership.join_limit);
  }

  // Whether NCCL registers memory of its allocator here. Why it does not is said once, unless it
  // has been told not to (NCCL_LOCAL_REGISTER).
  bool can_register() {
    try {
      void* taken = nullptr;
      check_nccl(ncclMemAlloc(&taken, kPage), "ncclMemAlloc");
      const std::shared_ptr<void> memory(taken, ncclMemFree);
      void* const handle = register_memory({taken, kPage});
      if (handle == nullptr) return false;
      deregister(handle);
      return true;
    } catch (const Error& error) {
      cudaGetLastError();
      static std::once_flag said;
      std::call_once(said, [&] {
        print_notice(str("warning: NCCL copies what replicas reduce on ", device_,
                         ", because it registers no memory there: ", error.message(), "\n"));
      });
      return false;
    }
  }

  // Adds up the ranks' trials in `memory`, on the card: NCCL connects ranks when they first reduce,
  // and what it cannot have for that, as shared memory, it lacks then. Memory is registered on all
  // ranks or on none: NCCL takes no calls for which it is on some.
  void try_out(const DeviceLibrary::Membership& membership, void* memory, bool can_register) {
    DeviceBackend& backend = device_backend(device_.type);
    const Trial own = {1, can_register ? 1.0F : 0.0F};
    backend.copy_from_host(device_, own.data(), memory, sizeof(own));
    const std::vector<NcclStep> steps = {
        {NcclStep::Kind::kAllReduce, memory, memory, own.size(), DType::kFloat32, ReduceOp::kSum}};
    const auto limit = membership.join_limit;
    gate_->pass(kTrial, limit, [&] { finish(submit_group(steps, kTrial), kTrial, limit); });
    COHORT_CUDA(device_, cudaEventRecord(ready_, cuda_stream(*stream_)));
    await(kTrial, limit, [&] {
      if (const auto error = find_error()) throw *error;
      return cudaEventQuery(ready_) != cudaErrorNotReady;
    });
    Trial sum = {};
    backend.copy_to_host(device_, memory, sum.data(), sizeof(sum));
    if (sum[0] != static_cast<float>(membership.size))
      fail(Code::kInternal, "NCCL: ", kTrial, " adds up ", membership.size, " ones to ", sum[0]);
    registers_ = sum[1] == sum[0];
  }

  void watch(const DeviceLibrary::Membership& membership) {
    watch_.emplace(OperationWatch::Options{
        .limit = limit_,
        .stall = membership.stall,
        .who = str("rank ", rank_, " of ", membership.size, " on ", device_),
        .find_error = [this] { return find_error(); },
        .end =
            [this](const Error& error) {
              gate_->close(error);
              end();
            }});
  }

  // Of a call on a communicator that does not block: returns when it has been done.
  void finish(ncclResult_t result, std::string_view what,
              std::optional<std::chrono::milliseconds> limit) {
    await(what, limit, [&] {
      const std::lock_guard lock(mutex_);
      if (result == ncclInProgress) {
        require_communicator(what);
        result = state();
      }
      if (result != ncclInProgress && result != ncclSuccess)
        throw error_of(result, communicator_, std::string(what));
      return result == ncclSuccess;
    });
  }

  // Returns when `is_done` says so, which throws what goes wrong meanwhile. A step waits here for
  // the thread that NCCL starts for each bucket, which has little to do.
  void await(std::string_view what, std::optional<std::chrono::milliseconds> limit,
             const std::function<bool()>& is_done) const {
    const Clock::time_point begin = Clock::now();
    for (Backoff backoff; !is_done(); backoff.pause())
      if (limit && Clock::now() - begin > *limit)
        fail(Code::kDeadlineExceeded, "NCCL: ", what, " has taken more than ", limit->count(),
             " ms on rank ", rank_, " (", device_, ")");
  }

  // Of what the communicator was handed last. Asking completes it, and that may fail by itself.
  ncclResult_t state() const {
    ncclResult_t result = ncclSuccess;
    const ncclResult_t asked = ncclCommGetAsyncError(communicator_, &result);
    return asked == ncclSuccess ? result : asked;
  }

  // The watch knows why there is none any more.
  void require_communicator(std::string_view what) const {
    if (communicator_ == nullptr) fail(Code::kAborted, "NCCL: ", what, ": the group has ended");
  }

  void register_memory_of(const std::vector<NcclStep>& steps) {
    if (!registers_) return;
    registrations_.remove_unused();
    for (const NcclStep& step : steps) {
      registrations_.add(step.source);
      registrations_.add(step.target);
    }
  }

  void* register_memory(const Buffer& memory) {
    constexpr std::string_view kWhat = "registering memory";
    void* handle = nullptr;
    const auto submit = [&] {
      const std::lock_guard lock(mutex_);
      require_communicator(kWhat);
      return ncclCommRegister(communicator_, memory.data, memory.bytes, &handle);
    };
    finish(submit(), kWhat, limit_);
    return handle;
  }

  // Where an error has ended the group, NCCL has done it.
  void deregister(void* handle) {
    const std::lock_guard lock(mutex_);
    if (communicator_ != nullptr) ncclCommDeregister(communicator_, handle);
  }

  void run_group(const std::vector<NcclStep>& steps, std::string_view kind) {
    if (steps.empty()) return;
    try {
      gate_->pass(kind, limit_, [&] { finish(submit_group(steps, kind), kind, limit_); });
    } catch (const Error& error) {
      watch_->fail_with_first(error);
    }
  }

  ncclResult_t submit_group(const std::vector<NcclStep>& steps, std::string_view kind) {
    const std::lock_guard lock(mutex_);
    require_communicator(kind);
    check_nccl(ncclGroupStart(), "ncclGroupStart");
    ncclResult_t result = ncclSuccess;
    for (const NcclStep& step : steps) {
      result = submit(step, communicator_, cuda_stream(*stream_));
      if (result != ncclSuccess && result != ncclInProgress) break;
    }
    const ncclResult_t ended = ncclGroupEnd();
    return result == ncclSuccess || result == ncclInProgress ? ended : result;
  }

  Operation& operation_of(const void* token) {
    auto& operation = operations_[token];
    if (operation == nullptr) {
      operation = std::make_unique<Operation>();
      for (cudaEvent_t* event : {&operation->begun, &operation->done})
        COHORT_CUDA(device_, cudaEventCreateWithFlags(event, cudaEventDisableTiming));
    }
    return *operation;
  }

  // On the watch's thread: whether the card has passed `event` of what was started as the
  // operation's `time`-th.
  bool has_passed(const Operation& operation, int64_t time, cudaEvent_t event) const {
    cudaSetDevice(card_);  // else this thread would take card 0 into use
    return operation.times != time || cudaEventQuery(event) != cudaErrorNotReady;
  }

  // On the watch's thread, once there is one.
  std::optional<Error> find_error() {
    const std::lock_guard lock(mutex_);
    if (communicator_ == nullptr) return std::nullopt;
    const ncclResult_t result = state();
    if (result == ncclSuccess || result == ncclInProgress) return std::nullopt;
    return error_of(result, communicator_, str("rank ", rank_, " on ", device_));
  }

  // The ordinary end: other ranks may still read what NCCL keeps on this card, which stays until
  // all have come here. After an error, or where one does not come, it is ended.
  void leave() {
    if (communicator_ == nullptr) return;
    try {
      registrations_.remove_all();
      finish(ncclCommFinalize(communicator_), "leaving the group", kLeaveLimit);
      ncclCommDestroy(std::exchange(communicator_, nullptr));
    } catch (const Error&) {
      end();
    }
  }

  // Ends what is under way on the card, too. Any thread may come here, and NCCL takes it back to
  // the card that it was at.
  void end() {
    cudaSetDevice(card_);  // else one that has none would take card 0 into use
    const std::lock_guard lock(mutex_);
    if (communicator_ != nullptr) ncclCommAbort(communicator_);
    communicator_ = nullptr;
  }

  // What has been ended may take a moment to end on the card, and its memory goes after this.
  void drain() {
    try {
      stream_->synchronize();
    } catch (const Error&) {  // nobody is left to tell
    }
  }

  void release() {
    for (const auto& [token, operation] : operations_)
      for (const cudaEvent_t event : {operation->begun, operation->done})
        if (event != nullptr) cudaEventDestroy(event);
    cudaEventDestroy(ready_);
  }

  const Device device_;
  const int card_, rank_;
  const std::optional<std::chrono::milliseconds> limit_;
  const std::shared_ptr<LaunchGate> gate_;
  const std::unique_ptr<Stream> stream_;
  cudaEvent_t ready_ = nullptr;
  std::mutex mutex_;  // guards the communicator
  ncclComm_t communicator_ = nullptr;
  bool registers_ = false;  // what is lent; the same on all ranks
  Registrations registrations_{lent_memory(),
                               [this](const Buffer& memory) { return register_memory(memory); },
                               [this](void* handle) { deregister(handle); }};
  std::unordered_map<const void*, std::unique_ptr<Operation>> operations_;
  std::optional<OperationWatch> watch_;  // last: it uses everything else
};

class Nccl final : public DeviceLibrary {
 public:
  std::string name() const override { return "NCCL"; }

  // Host and bus, and the host's boot: cards have numbers of their own in each process. Each rank
  // asks first, and what NCCL does on its thread from then on takes no other card into use.
  std::string place_of(Device device) const override {
    const Gpu& gpu = Gpus::instance().use(device);
    gpu.enter();
    char bus[64] = "";
    COHORT_CUDA(device, cudaDeviceGetPCIBusId(bus, sizeof(bus), gpu.card()));
    const NcclHostName host = nccl_host_name();
    return str(host.name, " ", bus, "\n", host.boot);
  }

  std::string make_id() const override {
    ncclUniqueId id;
    check_nccl(ncclGetUniqueId(&id), "ncclGetUniqueId");
    return {reinterpret_cast<const char*>(&id), sizeof(id)};
  }
  size_t id_bytes() const override { return sizeof(ncclUniqueId); }

  std::unique_ptr<DeviceCollectives> join(const Membership& membership) override {
    return std::make_unique<NcclCollectives>(membership);
  }
};

}  // namespace

DeviceLibrary* nccl_library() {
  static auto* library = new Nccl;
  return library;
}

}  // namespace cohort
