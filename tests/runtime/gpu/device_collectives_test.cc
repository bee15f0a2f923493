#include "core/collective/device_collectives.h"

#include <functional>
#include <map>
#include <thread>

#include <gtest/gtest.h>

#include "core/collective/forwarding_communicator.h"
#include "core/device/simulated/simulated_gpus.h"
#include "core/ops/collective_ops.h"
#include "core/ops/math_ops.h"
#include "core/runtime/plan.h"
#include "strategies/collective/nccl/nccl_steps.h"
#include "tests/runtime/trace.h"

// Collectives within a step, where the communicator has collectives on the device that can, and
// where it has not.
namespace cohort {
namespace {

using Extents = std::vector<int64_t>;
using Results = std::vector<std::vector<double>>;  // of one replica, by output

// NCCL's steps, done by a group of threads behind what the caller's stream was handed. The results
// are there when they have been waited for.
class Simulated final : public DeviceCollectives {
 public:
  explicit Simulated(std::unique_ptr<Communicator> ranks) : ranks_(std::move(ranks)) {}

  bool can_run(const Call& call) const override {
    return nccl_steps(call, ranks_->rank()).has_value();
  }
  void start(const Call& call, Stream& stream, const void* token) override {
    ++started;
    EXPECT_EQ(under_way_.count(token), 0u) << "two operations of one name";
    const auto steps = nccl_steps(call, ranks_->rank());
    for (const NcclStep& step : *steps) under_way_[token].push_back(run(step, stream));
  }
  void wait(const void* token, Stream& stream) override {
    for (const Result& result : under_way_[token])
      stream.copy_from_host(result.bytes.data(), result.target, result.bytes.size());
    stream.synchronize();
    under_way_.erase(token);
  }
  void check() override {}
  void abort(const Error& error) override { ranks_->abort(error); }

  int started = 0;

 private:
  using Kind = NcclStep::Kind;
  struct Result {
    void* target;
    std::vector<char> bytes;
  };

  Result run(const NcclStep& s, Stream& stream) {
    const auto size = static_cast<size_t>(ranks_->size());
    const size_t bytes = static_cast<size_t>(s.count) * dtype_size(s.dtype);
    std::vector<char> source(s.kind == Kind::kReduceScatter ? bytes * size : bytes);
    Result result{s.target, std::vector<char>(s.kind == Kind::kAllGather ? bytes * size : bytes)};
    stream.copy_to_host(s.source, source.data(), source.size());
    stream.synchronize();
    ask(s, source.data(), result.bytes.data());
    if (s.kind == Kind::kReduce && s.root != ranks_->rank()) result.bytes.clear();
    return result;
  }

  void ask(const NcclStep& s, const char* source, char* target) {
    const std::vector<int64_t> parts(static_cast<size_t>(ranks_->size()), s.count);
    const Segment segment{source, target, s.count};
    switch (s.kind) {
      case Kind::kAllReduce:
        return ranks_->all_reduce({&segment, 1}, s.dtype, s.op);
      case Kind::kReduce:
        return ranks_->reduce(source, target, s.count, s.dtype, s.op, s.root);
      case Kind::kReduceScatter:
        return ranks_->reduce_scatter(source, target, parts, s.dtype, s.op);
      case Kind::kBroadcast:
        return ranks_->broadcast(source, target, s.count, s.root);
      case Kind::kAllGather:
        return ranks_->all_gather(source, target, parts);
    }
  }

  const std::unique_ptr<Communicator> ranks_;
  std::map<const void*, std::vector<Result>> under_way_;
};

// Of host memory, with collectives on the device or without.
class WithSimulated final : public ForwardingCommunicator {
 public:
  WithSimulated(std::unique_ptr<Communicator> host, std::unique_ptr<Simulated> device)
      : ForwardingCommunicator(std::move(host)), device(std::move(device)) {}
  void run(const Call& call) override {
    ++on_host;
    inner().run(call);
  }
  void abort(const Error& error) override {
    if (device != nullptr) device->abort(error);
    inner().abort(error);
  }
  DeviceCollectives* on_device() override { return device.get(); }

  const std::unique_ptr<Simulated> device;
  int on_host = 0;
};

std::vector<std::unique_ptr<WithSimulated>> make_group(int size, bool on_device) {
  auto host = make_in_process_communicators(size), device = make_in_process_communicators(size);
  std::vector<std::unique_ptr<WithSimulated>> group;
  for (size_t r = 0; r < host.size(); ++r)
    group.push_back(std::make_unique<WithSimulated>(
        std::move(host[r]),
        on_device ? std::make_unique<Simulated>(std::move(device[r])) : nullptr));
  return group;
}

// Replicas that each run their step `kSteps` times, on a thread and a device each.
class Replicas {
 public:
  static constexpr int kSteps = 3;  // each starts from the results of the one before

  Replicas(int size, DeviceType type, bool on_device = false)
      : group(make_group(size, on_device)), type_(type) {}

  // What `step_of(replica)` gives of small numbers at last. The first error is thrown.
  std::vector<Results> run(const std::function<GraphFunction(int)>& step_of) {
    std::vector<Results> results(group.size());
    std::exception_ptr first;
    std::mutex mutex;
    std::vector<std::thread> threads;
    for (size_t r = 0; r < group.size(); ++r)
      threads.emplace_back([&, r] {
        try {
          results[r] = run_one(static_cast<int>(r), step_of(static_cast<int>(r)));
        } catch (const Error& error) {
          const std::lock_guard lock(mutex);
          if (first == nullptr) first = std::current_exception();
          for (const auto& communicator : group) communicator->abort(error);
        }
      });
    for (std::thread& thread : threads) thread.join();
    if (first != nullptr) std::rethrow_exception(first);
    return results;
  }

  const std::vector<std::unique_ptr<WithSimulated>> group;

 private:
  Results run_one(int replica, const GraphFunction& traced) const {
    const int gpu = type_ == DeviceType::kGpu ? replica : 0;
    Plan plan(traced, {.device = {type_, gpu}, .threads = 1});
    EXPECT_TRUE(plan.stats().host_ops.empty());
    EXPECT_FALSE(plan.stats().recorded);
    Results results;
    for (int step = 1; step <= kSteps; ++step) {
      std::vector<Tensor> feeds;
      for (const Value& input : traced.graph->inputs())
        feeds.push_back(numbers(input.spec(), step + replica));
      const auto outputs =
          plan.run(feeds, {.step = step,
                           .replica_id = replica,
                           .num_replicas = static_cast<int>(group.size()),
                           .communicator = group[static_cast<size_t>(replica)].get()});
      results.clear();
      for (const Tensor& output : outputs) {
        const Tensor wide = output.cast(DType::kFloat64);
        results.emplace_back(wide.values<double>().begin(), wide.values<double>().end());
      }
    }
    return results;
  }

  static Tensor numbers(const TensorSpec& spec, int first) {
    Tensor t(spec.dtype, spec.shape);
    for (int64_t i = 0; i < t.num_elements(); ++i)
      t.data<float>()[i] = static_cast<float>((first + 3 * i) % 17);
    return t;
  }

  const DeviceType type_;
};

// Each collective between kernels, of three dtypes and shapes: six calls.
GraphFunction every_collective(const Extents& extents, int replica) {
  const int64_t own = extents[static_cast<size_t>(replica)];
  int64_t total = 0;
  for (const int64_t rows : extents) total += rows;
  return trace({{DType::kFloat32, {own, 3}}, {DType::kFloat32, {total, 3}}}, [&](auto& x) {
    const Value rows = x[0] * 2.0, all = x[1] + 1.0;
    const auto sums = ops::all_reduce({all, rows, ops::cast(all, DType::kInt64), all * 0.5});
    return std::vector<Value>{sums[0] + 1.0,
                              sums[1] * sums[1],
                              sums[2],
                              sums[3] - 1.0,
                              ops::all_gather(rows, extents) * 3.0,
                              ops::reduce_scatter(all * 2.0, extents, own) - 1.0,
                              ops::broadcast(all * 3.0, 1) + 1.0};
  });
}

TEST(DeviceCollectives, AreDoneBetweenTheKernelsOfAStep) {
  simulated::use_simulated_gpus(3);
  for (const Extents& extents : {Extents{2, 2}, Extents{2, 2, 2}, Extents{0, 0}}) {
    const auto size = static_cast<int>(extents.size());
    const auto step_of = [&](int replica) { return every_collective(extents, replica); };
    const auto want = Replicas(size, DeviceType::kCpu).run(step_of);
    Replicas on_device(size, DeviceType::kGpu, true), on_host(size, DeviceType::kGpu);
    EXPECT_EQ(on_device.run(step_of), want);
    EXPECT_EQ(on_host.run(step_of), want);
    for (const auto& communicator : on_device.group) {
      EXPECT_EQ(communicator->on_host, 0);
      EXPECT_EQ(communicator->device->started, 6 * Replicas::kSteps);
    }
    for (const auto& communicator : on_host.group)
      EXPECT_EQ(communicator->on_host, 6 * Replicas::kSteps);
  }
}

TEST(DeviceCollectives, MovePartsOfAnySizes) {
  simulated::use_simulated_gpus(3);
  for (const Extents& extents : {Extents{1, 4}, Extents{3, 0, 2}}) {
    const auto size = static_cast<int>(extents.size());
    const auto step_of = [&](int replica) {
      const int64_t own = extents[static_cast<size_t>(replica)];
      return trace({{DType::kFloat32, {own, 3}}}, [&](auto& x) {
        const Value all = ops::all_gather(x[0] * 2.0, extents);
        return std::vector<Value>{all, ops::reduce_scatter(all + 1.0, extents, own) * 3.0};
      });
    };
    Replicas on_device(size, DeviceType::kGpu, true);
    EXPECT_EQ(on_device.run(step_of), Replicas(size, DeviceType::kCpu).run(step_of));
    for (const auto& communicator : on_device.group) EXPECT_EQ(communicator->on_host, 0);
  }
}

// All of an op's values, where one is not for the device.
TEST(DeviceCollectives, AreLeftToTheHostWhereTheDeviceCannot) {
  simulated::use_simulated_gpus(2);
  const auto step_of = [](int) {
    return trace({{DType::kFloat32, {5}}}, [](auto& x) {
      const Value y = x[0] * 2.0;
      const auto most = ops::all_reduce({ops::cast(y, DType::kInt32), y}, ReduceOp::kMax);
      return std::vector<Value>{most[0], most[1] + 1.0};
    });
  };
  Replicas on_device(2, DeviceType::kGpu, true);
  EXPECT_EQ(on_device.run(step_of), Replicas(2, DeviceType::kCpu).run(step_of));
  for (const auto& communicator : on_device.group) {
    EXPECT_EQ(communicator->on_host, 2 * Replicas::kSteps);
    EXPECT_EQ(communicator->device->started, 0);
  }
}

TEST(DeviceCollectives, OfAGraphForOtherReplicasAreTheErrorsOfTheCpu) {
  simulated::use_simulated_gpus(3);
  const TensorSpec two_rows{DType::kFloat32, {2, 1}}, four_rows{DType::kFloat32, {4, 1}};
  const std::vector<std::pair<TensorSpec, std::function<Value(const Value&)>>> steps = {
      {two_rows,
       [](const Value& x) {
         return ops::all_gather(x, {2, 2});
       }},
      {four_rows,
       [](const Value& x) {
         return ops::reduce_scatter(x, {2, 2}, 2);
       }},
      {two_rows, [](const Value& x) { return ops::broadcast(x, 3); }}};
  for (const auto& [spec, op] : steps) {
    const auto step_of = [&](int) {
      return trace({spec}, [&](auto& x) { return std::vector<Value>{op(x[0])}; });
    };
    const auto error_on = [&](DeviceType type) {
      try {
        Replicas(3, type, type == DeviceType::kGpu).run(step_of);
      } catch (const Error& error) {
        return std::string(error.what());
      }
      return std::string("nothing was thrown");
    };
    EXPECT_NE(error_on(DeviceType::kGpu).find("INVALID_ARGUMENT"), std::string::npos);
    EXPECT_EQ(error_on(DeviceType::kGpu), error_on(DeviceType::kCpu));
  }
}

}  // namespace
}  // namespace cohort
