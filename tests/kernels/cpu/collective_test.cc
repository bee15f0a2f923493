#include <atomic>
#include <numeric>
#include <thread>
#include <utility>
#include <variant>

#include "core/collective/forwarding_communicator.h"
#include "tests/kernels/cpu/kernel_testing.h"

namespace cohort::testing {
namespace {

// Runs `work(step)` as each of the replicas, on a thread each; one alone has no communicator. An
// error of one is thrown to the others too, and then here.
template <typename Work>
void on_replicas(int replicas, const Work& work) {
  if (replicas == 1) return work(StepInfo{});
  const auto group = make_in_process_communicators(replicas);
  std::vector<std::exception_ptr> errors(group.size());
  std::vector<std::thread> threads;
  for (int r = 0; r < replicas; ++r)
    threads.emplace_back([&, r] {
      const auto replica = static_cast<size_t>(r);
      try {
        work(StepInfo{
            .replica_id = r, .num_replicas = replicas, .communicator = group[replica].get()});
      } catch (const Error& error) {
        errors[replica] = std::current_exception();
        group[replica]->abort(error);
      }
    });
  for (auto& thread : threads) thread.join();
  for (const auto& error : errors)
    if (error) std::rethrow_exception(error);
}

Attributes reduction(ReduceOp op) { return {{"op", static_cast<int64_t>(op)}}; }

Attributes start_attributes(bool conditional) {
  Attributes attributes = reduction(ReduceOp::kSum);
  attributes.set("conditional", conditional);
  return attributes;
}

class Collectives : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Replicas, Collectives, ::testing::Values(1, 2, 3, 4, 7));

// All dtypes that are reduced, and extents of a value's first axis.
constexpr DType kNumbers[] = {DType::kFloat32, DType::kFloat64, DType::kBFloat16, DType::kFloat16,
                              DType::kInt32,   DType::kInt64,   DType::kUInt8};
constexpr int64_t kRows[] = {0, 1, 3, 7};

// rows x 2 elements: 1, 2, 3, ... plus 5 for each replica id, so that every dtype has each of kRows
// and its sum over 7 replicas.
Tensor rows_of(int replica, int64_t rows, DType dtype = DType::kFloat32) {
  Tensor wide(DType::kFloat64, {rows, 2});
  for (int64_t i = 0; i < rows * 2; ++i)
    wide.data<double>()[i] = static_cast<double>(i + 1 + 5 * replica);
  return wide.cast(dtype);
}

std::vector<double> sum_of_rows(int replicas, int64_t rows) {
  std::vector<double> sum(static_cast<size_t>(rows * 2));
  for (int r = 0; r < replicas; ++r) {
    const auto values = to_doubles(rows_of(r, rows));
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += values[i];
  }
  return sum;
}

TEST_P(Collectives, AllReduceTakesValuesOfAllDTypesAndExtents) {
  on_replicas(GetParam(), [&](const StepInfo& step) {
    std::vector<Tensor> values;
    std::vector<TensorSpec> specs;
    for (const DType dtype : kNumbers)
      for (const int64_t rows : kRows) {
        values.push_back(rows_of(step.replica_id, rows, dtype));
        specs.push_back(values.back().spec());
      }
    for (const int in_place : {-1, 0, 3}) {
      const auto out =
          run_kernel("AllReduce", values, specs, reduction(ReduceOp::kSum),
                     {.step = step, .in_place_output = in_place, .in_place_input = in_place});
      for (size_t i = 0; i < out.size(); ++i)
        expect_near(sum_of_rows(GetParam(), specs[i].shape[0]), out[i], 0, str(specs[i]));
    }
  });
}

// A start and its wait, with the memory of a plan.
class StartAndWait {
 public:
  StartAndWait(std::vector<Tensor> values, const Attributes& attributes, bool in_place)
      : values_(std::move(values)), operation_(Tensor::scalar<int64_t>(77)) {
    std::vector<TensorSpec> inputs, outputs;
    for (const Tensor& value : values_) {
      inputs.push_back(value.spec());
      outputs.push_back(value.spec());
      buckets_.push_back(in_place ? value : Tensor(value.dtype(), value.shape()));
      results_.push_back(in_place ? value : Tensor(value.dtype(), value.shape()));
    }
    if (attributes.get<bool>("conditional")) inputs.push_back({DType::kBool, {}});
    outputs.push_back(operation_.spec());
    start_ = make_kernel({"AllReduceStart", inputs, outputs, attributes, Device{}, 1});
    wait_ = make_kernel({"AllReduceWait",
                         outputs,
                         {inputs.begin(), inputs.begin() + count()},
                         attributes,
                         Device{},
                         1});
    for (int i = 0; i < count(); ++i) {
      EXPECT_TRUE(start_->can_run_in_place(i, i) && wait_->can_run_in_place(i, i));
      EXPECT_FALSE(start_->can_run_in_place(i, i + 1));
    }
    EXPECT_FALSE(start_->can_run_in_place(count(), count()));
  }

  void start(const StepInfo& step, const bool* condition = nullptr) {
    std::vector<const void*> inputs = pointers<const void*>(values_);
    if (condition != nullptr) inputs.push_back(condition);
    std::vector<void*> outputs = pointers<void*>(buckets_);
    outputs.push_back(operation_.raw());
    start_->run({inputs, outputs, nullptr, step});
  }

  std::vector<Tensor> wait(const StepInfo& step) {
    std::vector<const void*> inputs = pointers<const void*>(buckets_);
    inputs.push_back(operation_.raw());
    const std::vector<void*> outputs = pointers<void*>(results_);
    wait_->run({inputs, outputs, nullptr, step});
    return results_;
  }

  int64_t operation() const { return *operation_.data<int64_t>(); }

 private:
  int count() const { return static_cast<int>(values_.size()); }
  template <typename P>
  static std::vector<P> pointers(std::vector<Tensor>& tensors) {
    std::vector<P> all;
    for (Tensor& tensor : tensors) all.push_back(tensor.raw());
    return all;
  }

  std::vector<Tensor> values_, buckets_, results_;
  Tensor operation_;
  std::unique_ptr<Kernel> start_, wait_;
};

TEST_P(Collectives, StartedReductionsEndWithTheirWaitsStepAfterStep) {
  for (const bool in_place : {false, true})
    on_replicas(GetParam(), [&](const StepInfo& step) {
      const int r = step.replica_id;
      for (int round = 0; round < 3; ++round) {
        StartAndWait a({rows_of(r, 4), rows_of(r, 700)}, start_attributes(false), in_place);
        StartAndWait b({rows_of(r, 9)}, start_attributes(false), in_place);
        a.start(step);
        b.start(step);
        EXPECT_EQ(a.operation() >= 0, step.communicator != nullptr);
        expect_near(sum_of_rows(GetParam(), 9), b.wait(step)[0], 0, "the second");
        const auto sums = a.wait(step);
        expect_near(sum_of_rows(GetParam(), 4), sums[0], 0, "the first");
        expect_near(sum_of_rows(GetParam(), 700), sums[1], 0, "its second value");
      }
    });
}

TEST_P(Collectives, StartedReductionsTakeEveryDTypeAndExtent) {
  for (const DType dtype : kNumbers)
    for (const bool in_place : {false, true})
      on_replicas(GetParam(), [&](const StepInfo& step) {
        std::vector<Tensor> together;
        for (const int64_t rows : kRows) {
          together.push_back(rows_of(step.replica_id, rows, dtype));
          StartAndWait alone({together.back().clone()}, start_attributes(false), in_place);
          alone.start(step);
          expect_near(sum_of_rows(GetParam(), rows), alone.wait(step)[0], 0,
                      str(rows, " rows of ", dtype));
        }
        StartAndWait all(together, start_attributes(false), in_place);
        all.start(step);
        const auto sums = all.wait(step);
        for (size_t i = 0; i < sums.size(); ++i)
          expect_near(sum_of_rows(GetParam(), kRows[i]), sums[i], 0,
                      str(kRows[i], " rows of ", dtype, " among others"));
      });
}

TEST_P(Collectives, AConditionSaysAtEachStepWhetherToReduce) {
  for (const bool in_place : {false, true})
    on_replicas(GetParam(), [&](const StepInfo& step) {
      for (const bool when : {false, true, false}) {
        StartAndWait kernels({rows_of(step.replica_id, 4)}, start_attributes(true), in_place);
        kernels.start(step, &when);
        EXPECT_EQ(kernels.operation() >= 0, when && step.communicator != nullptr);
        const auto expected =
            when ? sum_of_rows(GetParam(), 4) : to_doubles(rows_of(step.replica_id, 4));
        expect_near(expected, kernels.wait(step)[0], 0, str("when ", when));
      }
    });
}

TEST_P(Collectives, UnwantedResultsAreNotWritten) {
  on_replicas(GetParam(), [&](const StepInfo& step) {
    Attributes attributes = start_attributes(false);
    if (step.replica_id > 0) attributes.set("unwanted", std::vector<int64_t>{1});
    const auto value = [&] { return rows_of(step.replica_id, 3); };
    StartAndWait kernels({value(), value(), value()}, attributes, true);
    kernels.start(step);
    const auto results = kernels.wait(step);
    const auto sum = sum_of_rows(GetParam(), 3);
    expect_near(sum, results[0], 0, "wanted");
    expect_near(step.replica_id > 0 ? to_doubles(value()) : sum, results[1], 0, "unwanted");
    expect_near(sum, results[2], 0, "wanted");
  });
}

// Shows which segments are reduced.
class ShowingCommunicator final : public ForwardingCommunicator {
 public:
  using ForwardingCommunicator::ForwardingCommunicator;

  int64_t start(const Call& call) override {
    const auto started = std::get<AllReduceCall>(call).segments;
    segments.assign(started.begin(), started.end());
    return ForwardingCommunicator::start(call);
  }

  std::vector<Segment> segments;
};

// Of as many values of 1024 elements, of which each of 16 replicas wants its part: the segments
// that the third of them reduces.
std::vector<Segment> segments_of_divided(size_t values) {
  ShowingCommunicator communicator(std::move(make_in_process_communicators(1)[0]));
  const StepInfo step{.communicator = &communicator};
  std::vector<int64_t> all(values);
  std::iota(all.begin(), all.end(), 0);
  Attributes attributes = start_attributes(false);
  attributes.set("divided", all);
  attributes.set("part", std::vector<int64_t>{2, 16});
  StartAndWait kernels(std::vector<Tensor>(values, rows_of(0, 512)), attributes, false);
  kernels.start(step);
  kernels.wait(step);
  return communicator.segments;
}

// Whether `b` is the memory behind `a`, and wanted if `a` is.
bool continues(const Segment& a, const Segment& b) {
  return b.source == static_cast<const float*>(a.source) + a.count &&
         (a.target == nullptr) == (b.target == nullptr);
}

TEST(DividedSums, AreInTheOrderOfPartsWhereTheyAreFew) {
  const auto segments = segments_of_divided(3);
  ASSERT_EQ(segments.size(), 3u * 16);
  for (size_t s = 0; s < segments.size(); ++s) {
    EXPECT_EQ(segments[s].count, 64);
    EXPECT_EQ(segments[s].target != nullptr, s / 3 == 2) << s;
  }
  EXPECT_TRUE(continues(segments[0], segments[3]));
}

TEST(DividedSums, LieInFewStretchesWhereTheyAreMany) {
  const auto segments = segments_of_divided(100);
  ASSERT_EQ(segments.size(), 100u * 16);
  size_t stretches = 1;
  for (size_t s = 1; s < segments.size(); ++s)
    if (!continues(segments[s - 1], segments[s])) ++stretches;
  EXPECT_LE(stretches, 3u * 100);
}

TEST(CollectiveErrors, ABucketHasOneDType) {
  const Attributes attributes = start_attributes(false);
  const std::vector<TensorSpec> values = {{DType::kFloat32, {2}}, {DType::kFloat64, {2}}};
  try {
    make_kernel({"AllReduceStart",
                 values,
                 {values[0], values[1], {DType::kInt64, {}}},
                 attributes,
                 Device{},
                 1});
    ADD_FAILURE() << "two dtypes were accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kInvalidArgument);
    EXPECT_EQ(error.message(),
              "AllReduceStart: all values need one dtype, got float32[2] and float64[2]");
  }
}

// Row counts of the replicas, some of them none.
std::vector<int64_t> uneven(int replicas) {
  std::vector<int64_t> extents;
  for (int r = 0; r < replicas; ++r) extents.push_back((r * 2 + 3) % 4);
  return extents;
}

TEST_P(Collectives, AllGatherAndReduceScatterTakeUnevenParts) {
  const auto extents = uneven(GetParam());
  int64_t total = 0;
  std::vector<double> joined;
  for (int r = 0; r < GetParam(); ++r) {
    const auto values = to_doubles(rows_of(r, extents[static_cast<size_t>(r)]));
    joined.insert(joined.end(), values.begin(), values.end());
    total += extents[static_cast<size_t>(r)];
  }
  on_replicas(GetParam(), [&](const StepInfo& step) {
    const int64_t own = extents[static_cast<size_t>(step.replica_id)];
    const Tensor all =
        run_kernel("AllGather", {rows_of(step.replica_id, own)}, {{DType::kFloat32, {total, 2}}},
                   {{"extents", extents}}, {.step = step})[0];
    expect_near(joined, all, 0, "AllGather");
    // Everybody has the joined value times 1 + its id.
    Tensor value = all.clone();
    for (int64_t i = 0; i < total * 2; ++i)
      value.data<float>()[i] *= static_cast<float>(step.replica_id + 1);
    auto part = to_doubles(rows_of(step.replica_id, own));
    for (double& x : part) x *= GetParam() * (GetParam() + 1) / 2;
    expect_near(part,
                run_kernel("ReduceScatter", {value}, {{DType::kFloat32, {own, 2}}},
                           {{"extents", extents}, {"rows", own}}, {.step = step})[0],
                0, "ReduceScatter");
  });
}

TEST(CollectiveErrors, AGraphTracedForOtherReplicasIsRefused) {
  const auto message = [](int replicas, std::vector<int64_t> extents) {
    try {
      on_replicas(replicas, [&](const StepInfo& step) {
        run_kernel("AllGather", {rows_of(0, 2)}, {{DType::kFloat32, {4, 2}}},
                   {{"extents", extents}}, {.step = step});
      });
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::kInvalidArgument);
      return error.message();
    }
    return std::string("no error");
  };
  EXPECT_EQ(message(1, {2, 2}), "AllGather: traced for 2 replicas, run on 1");
  EXPECT_EQ(message(3, {2, 2}), "AllGather: traced for 2 replicas, run on 3");
  EXPECT_EQ(message(2, {2, 3}), "AllGather: replica 1 has 2 rows where 3 were announced");
}

TEST_P(Collectives, BroadcastGivesTheRootsValue) {
  on_replicas(GetParam(), [&](const StepInfo& step) {
    const auto expect_root = [&](int root, int64_t rows, DType dtype) {
      for (const int in_place : {-1, 0}) {
        const Tensor value = rows_of(step.replica_id, rows, dtype);
        const auto out =
            run_kernel("Broadcast", {value}, {value.spec()}, {{"root", int64_t{root}}},
                       {.step = step, .in_place_output = in_place, .in_place_input = in_place});
        expect_same_bytes(rows_of(root, rows, dtype), out[0], str("root ", root));
      }
    };
    for (int root = 0; root < GetParam(); ++root)
      for (const int64_t rows : kRows) {
        for (const DType dtype : kNumbers) expect_root(root, rows, dtype);
        expect_root(root, rows, DType::kBool);
      }
  });
  EXPECT_THROW(on_replicas(GetParam(),
                           [&](const StepInfo& step) {
                             const Tensor value = rows_of(0, 1);
                             run_kernel("Broadcast", {value}, {value.spec()},
                                        {{"root", int64_t{GetParam()}}}, {.step = step});
                           }),
               Error);
}

TEST_P(Collectives, BarrierAndReplicaId) {
  std::atomic<int> arrived = 0;
  on_replicas(GetParam(), [&](const StepInfo& step) {
    ++arrived;
    run_kernel("Barrier", {}, {}, {}, {.step = step});
    EXPECT_EQ(arrived, GetParam());
    EXPECT_EQ(run_kernel("ReplicaId", {}, {{DType::kInt64, {}}}, {}, {.step = step})[0].item(),
              step.replica_id);
  });
}

}  // namespace
}  // namespace cohort::testing
