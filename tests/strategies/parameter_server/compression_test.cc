#include "strategies/parameter_server/compression.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/base/random.h"
#include "core/ops/math_ops.h"
#include "tests/strategies/parameter_server/testing.h"

namespace cohort::testing {
namespace {

// What a server makes of the next gradient.
Tensor received(GradientCompressor& compressor, const Tensor& gradient) {
  const auto buffer = compressor.compress("w", gradient);
  parameter_server::check_compressed(compressor.kind(), gradient.spec(), buffer->bytes);
  Tensor result(gradient.dtype(), gradient.shape());
  parameter_server::decompress(compressor.kind(), static_cast<const char*>(buffer->data),
                               buffer->bytes, result);
  return result;
}

std::vector<float> send(GradientCompressor& compressor, const std::vector<float>& values) {
  return values_of(received(compressor, floats(values)));
}

Tensor doubles(const std::vector<double>& values) {
  return Tensor::from(values, {static_cast<int64_t>(values.size())});
}

std::vector<double> doubles_of(const Tensor& tensor) {
  const Tensor wide = tensor.cast(DType::kFloat64);
  const auto values = wide.values<double>();
  return {values.begin(), values.end()};
}

using Floats = std::vector<float>;

ParameterClient client_of(const TestServer& server, const CompressionOptions& compression,
                          const std::string& task = "worker:0") {
  return ParameterClient(
      server.address(),
      {.task = task, .job_id = "job", .compression = compression, .transport = transport()},
      no_environment);
}

TEST(OneBit, SendsSignsWithTheMeanMagnitude) {
  GradientCompressor compressor({.kind = Compression::kOneBit});
  EXPECT_EQ(send(compressor, {4, -2, 1, -1}), (Floats{2, -2, 2, -2}));
  EXPECT_EQ(values_of(compressor.residual("w")), (Floats{2, 0, -1, 1}));
  EXPECT_EQ(send(compressor, {0, 0, 0, 0}), (Floats{1, 1, -1, 1}));
  EXPECT_EQ(values_of(compressor.residual("w")), (Floats{1, -1, 0, 0}));
}

TEST(TwoBit, SendsAThresholdAtATime) {
  GradientCompressor compressor({.kind = Compression::kTwoBit, .threshold = 0.5});
  const Floats in = {0.4f, 0.1f, 0.2f, 0.3f, -0.7f, 0.2f, 1.6f, 0, 0},
               sent = {0, 0.5f, 0, 0.5f, -0.5f, 0, 0.5f, 0.5f, 0.5f},
               left = {0.4f, 0, 0.2f, 0, -0.2f, 0, 1.1f, 0.6f, 0.1f};
  for (size_t i = 0; i < in.size(); ++i) {
    EXPECT_EQ(send(compressor, {in[i]}), (Floats{sent[i]})) << i;
    EXPECT_NEAR(values_of(compressor.residual("w"))[0], left[i], 1e-6) << i;
  }
  for (const float bad : {0.0f, -1.0f, std::nanf("")})
    EXPECT_ERROR(GradientCompressor({.threshold = bad}), Code::kInvalidArgument, "threshold");
}

TEST(TwoBit, AddsUpOverWorkers) {
  TestServer server;
  const ShardSpec spec = whole_shard("w", kOne);
  const CompressionOptions two_bit{.kind = Compression::kTwoBit};
  ParameterClient workers[] = {
      client_of(server, two_bit, "worker:0"), client_of(server, two_bit, "worker:1"),
      client_of(server, two_bit, "worker:2"), client_of(server, two_bit, "worker:3")};
  workers[0].create(spec, [] { return floats({0}); });
  Floats values;
  for (const float gradient : {0.4f, 0.1f, 0.2f, 0.3f}) {
    for (ParameterClient& worker : workers)
      worker.push({.shard = "w", .gradient = floats({-gradient}), .learning_rate = 2});
    values.push_back(values_of(fetch(workers[0], spec))[0]);
  }
  EXPECT_EQ(values, (Floats{0, 4, 4, 8}));
}

TEST(TopK, SendsTheLargestWithWhatStayedBehind) {
  GradientCompressor compressor({.kind = Compression::kTopK, .top_k = 0.25});
  EXPECT_EQ(send(compressor, {0.9f, -0.5f, 0.3f, 0.1f}), (Floats{0.9f, 0, 0, 0}));
  EXPECT_EQ(send(compressor, {0.1f, -0.3f, 0.3f, 0.1f}), (Floats{0, -0.8f, 0, 0}));
  const Floats third = send(compressor, {0, 0, 0.3f, 0.1f});
  EXPECT_NEAR(third[2], 0.9, 1e-6);
  EXPECT_EQ(third[0] + third[1] + third[3], 0);
}

TEST(TopK, SendsAShareOfTheElementsRoundedUp) {
  struct Case {
    double share;
    size_t elements, sent;
  };
  for (const Case& each : {Case{0.07, 100, 7}, Case{0.29, 100, 29}, Case{0.25, 8, 2},
                           Case{0.25, 9, 3}, Case{0.01, 3, 1}, Case{1, 5, 5}})
    for (const Compression kind : {Compression::kTopK, Compression::kRandomK}) {
      GradientCompressor compressor({.kind = kind, .top_k = each.share});
      const Floats sent = send(compressor, Floats(each.elements, 1));
      EXPECT_EQ(each.elements - static_cast<size_t>(std::ranges::count(sent, 0.0f)), each.sent)
          << each.share << " of " << each.elements;
    }
}

TEST(TopK, SendsTheVeryFloat64) {
  const double exact = 1 + 0x1p-40;
  TestServer server;
  ParameterClient client = client_of(server, {.kind = Compression::kTopK, .top_k = 0.5});
  const ShardSpec spec = whole_shard("w", {DType::kFloat64, {2}});
  client.create(spec, [] { return Tensor::zeros(DType::kFloat64, {2}); });
  for (const double first : {-exact, 0.0})
    client.push({.shard = "w", .gradient = doubles({first, exact / 3}), .learning_rate = 1});
  EXPECT_EQ(doubles_of(fetch(client, spec)), (std::vector<double>{exact, -(exact / 3 + exact / 3)}))
      << "one element after the other, with what has stayed behind";
}

// As of a worker that has no rows for a step.
TEST(TopK, KeepsWhatHasStayedBehindOutOfWhatWeighsNothing) {
  TestServer server;
  ParameterClient client = client_of(server, {.kind = Compression::kTopK, .top_k = 0.5});
  const ShardSpec spec = whole_shard("w", {DType::kFloat32, {2}});
  client.create(spec, [] { return floats({0, 0}); });
  const auto push = [&](const Floats& gradient, double weight) {
    client.push({.shard = "w", .gradient = floats(gradient), .learning_rate = 1, .weight = weight});
    return values_of(fetch(client, spec));
  };
  EXPECT_EQ(push({-4, -1}, 1), (Floats{4, 0}));
  EXPECT_EQ(push({0, 0}, 0), (Floats{4, 0}));
  EXPECT_EQ(push({0, 0}, 1), (Floats{4, 1}));
}

TEST(RandomK, SendsAnyElementsWithWhatStayedBehind) {
  constexpr size_t kElements = 8;
  constexpr int kSteps = 200;
  GradientCompressor compressor({.kind = Compression::kRandomK, .top_k = 0.25});
  std::vector<int> times(kElements);
  Floats waiting(kElements);
  for (int step = 0; step < kSteps; ++step) {
    int count = 0;
    const Floats sent = send(compressor, Floats(kElements, 1));
    for (size_t i = 0; i < kElements; ++i) {
      ++waiting[i];
      if (sent[i] == 0) continue;
      EXPECT_EQ(sent[i], waiting[i]) << "step " << step << ", element " << i;
      waiting[i] = 0;
      ++times[i];
      ++count;
    }
    EXPECT_EQ(count, 2) << "a quarter of them";
    EXPECT_EQ(values_of(compressor.residual("w")), waiting);
  }
  for (const int n : times) EXPECT_NEAR(n, kSteps / 4.0, kSteps / 8.0);
}

TEST(RandomK, DrawsForEachTaskAndTheSameAgain) {
  const auto drawn = [](const std::string& task) {
    GradientCompressor compressor({.kind = Compression::kRandomK, .top_k = 0.1}, task);
    return send(compressor, Floats(100, 1));
  };
  EXPECT_EQ(drawn("worker:0"), drawn("worker:0"));
  EXPECT_NE(drawn("worker:0"), drawn("worker:1"));
}

TEST(Int8, HasAnErrorOfHalfAStepAtMost) {
  GradientCompressor compressor({.kind = Compression::kInt8});
  const auto buffer = compressor.compress("w", floats({0.5f, -1.27f, 0.01f, 0.006f}));
  float scale = 0;
  std::memcpy(&scale, buffer->data, sizeof scale);
  EXPECT_FLOAT_EQ(scale, 0.01f);
  const auto* steps = static_cast<const int8_t*>(buffer->data) + sizeof scale;
  EXPECT_EQ(std::vector<int>(steps, steps + 4), (std::vector<int>{50, -127, 1, 1}));
  for (const float left : values_of(compressor.residual("w")))
    EXPECT_LE(std::abs(left), scale / 2 * 1.001f);
}

// It would stay in what is kept for ever.
TEST(GradientCompressor, RefusesWhatIsNotFinite) {
  for (const DType dtype : {DType::kFloat32, DType::kFloat64, DType::kBFloat16, DType::kFloat16}) {
    GradientCompressor::require_finite("w", doubles({0.1, -7}).cast(dtype));
    for (const double bad : {std::nan(""), double{INFINITY}, -double{INFINITY}})
      EXPECT_ERROR(GradientCompressor::require_finite("w", doubles({0.1, bad}).cast(dtype)),
                   Code::kOutOfRange, "shard \"w\"");
  }
}

TEST(Float16, LeavesBehindWhatItCannotHold) {
  GradientCompressor compressor({.kind = Compression::kFloat16});
  EXPECT_EQ(send(compressor, {1, 100000, -2}), (Floats{1, 65504, -2}));
  EXPECT_EQ(values_of(compressor.residual("w")), (Floats{0, 100000 - 65504, 0}));
}

TEST(BFloat16, LeavesBehindWhatItCannotHold) {
  constexpr float kLargest = 0x1.FEp127f, kLarger = 0x1.FFFFFEp127f;
  GradientCompressor compressor({.kind = Compression::kBFloat16});
  EXPECT_EQ(send(compressor, {kLarger, -kLarger}), (Floats{kLargest, -kLargest}));
  EXPECT_EQ(values_of(compressor.residual("w")), (Floats{kLarger - kLargest, kLargest - kLarger}));
  EXPECT_EQ(send(compressor, {0, 0}), (Floats{0x1p120f, -0x1p120f}));
}

TEST(Halves, GiveBackTheDtypeAndExactOnes) {
  for (const Compression kind : {Compression::kBFloat16, Compression::kFloat16})
    for (const DType dtype :
         {DType::kFloat32, DType::kFloat64, DType::kBFloat16, DType::kFloat16}) {
      SCOPED_TRACE(dtype_name(dtype));
      GradientCompressor compressor({.kind = kind});
      const Tensor there = received(compressor, Tensor::full(dtype, {3}, 1));
      EXPECT_EQ(there.dtype(), dtype);
      EXPECT_EQ(doubles_of(there), (std::vector<double>{1, 1, 1}));
      EXPECT_EQ(doubles_of(compressor.residual("w")), (std::vector<double>{0, 0, 0}));
    }
}

TEST(GradientCompressor, HasWhatItKeptBeforeWhereThatIsPutBack) {
  GradientCompressor compressor({.kind = Compression::kTopK, .top_k = 0.25});
  send(compressor, {4, -2, 1, -1});
  const Tensor kept = compressor.residual("w");
  for (int i = 0; i < 2; ++i) send(compressor, {1, 1, 1, 1});
  compressor.put_back("w", kept);
  EXPECT_EQ(values_of(compressor.residual("w")), (Floats{0, -2, 1, -1}));
}

TEST(GradientCompressor, IsForFloatingPoint) {
  EXPECT_ERROR(GradientCompressor::require_finite("w", Tensor::zeros(DType::kInt32, {2})),
               Code::kUnimplemented, "int32");
}

class EveryCompression : public ::testing::TestWithParam<Compression> {};
INSTANTIATE_TEST_SUITE_P(All, EveryCompression,
                         ::testing::Values(Compression::kBFloat16, Compression::kFloat16,
                                           Compression::kInt8, Compression::kOneBit,
                                           Compression::kTopK, Compression::kTwoBit,
                                           Compression::kRandomK));

TEST_P(EveryCompression, LosesNothingInTheEnd) {
  constexpr uint64_t kSeed = 20;
  constexpr size_t kElements = 77;
  for (const DType dtype : {DType::kFloat32, DType::kFloat64, DType::kBFloat16, DType::kFloat16}) {
    SCOPED_TRACE(str(dtype_name(dtype), ", seed ", kSeed));
    GradientCompressor compressor({.kind = GetParam(), .top_k = 0.1});
    RandomStream random(kSeed);
    std::vector<double> in(kElements), out(kElements);
    for (int step = 0; step < 50; ++step) {
      std::vector<double> numbers(kElements);
      for (double& x : numbers) x = random.uniform() - 0.4;
      const Tensor gradient = doubles(numbers).cast(dtype);
      const std::vector<double> given = doubles_of(gradient),
                                sent = doubles_of(received(compressor, gradient));
      for (size_t i = 0; i < kElements; ++i) {
        in[i] += given[i];
        out[i] += sent[i];
      }
    }
    const Tensor residual = compressor.residual("w");
    const bool is_wide = dtype == DType::kFloat64;
    EXPECT_EQ(residual.dtype(), is_wide ? DType::kFloat64 : DType::kFloat32);
    const std::vector<double> left = doubles_of(residual);
    for (size_t i = 0; i < kElements; ++i)
      ASSERT_NEAR(out[i] + left[i], in[i], is_wide ? 1e-12 : 1e-4) << i;
  }
}

// Neither on its way nor in what is kept, also of what is beyond all that can be sent.
TEST_P(EveryCompression, OverflowsNowhere) {
  const std::pair<DType, double> largest[] = {{DType::kFloat32, 0x1.FFFFFEp127},
                                              {DType::kFloat64, 0x1.FFFFFFFFFFFFFp1023},
                                              {DType::kBFloat16, 0x1.FEp127},
                                              {DType::kFloat16, 65504}};
  for (const auto& [dtype, most] : largest) {
    SCOPED_TRACE(dtype_name(dtype));
    GradientCompressor compressor({.kind = GetParam(), .top_k = 0.5});
    for (const double factor : {1, 1, 0, 0}) {
      const Tensor gradient =
          doubles({most * factor, -most * factor, most / 2 * factor, 0, -most * factor})
              .cast(dtype);
      for (const double x : doubles_of(received(compressor, gradient)))
        EXPECT_TRUE(std::isfinite(x)) << x;
      for (const double x : doubles_of(compressor.residual("w")))
        EXPECT_TRUE(std::isfinite(x)) << x;
    }
  }
}

TEST_P(EveryCompression, TrainsThroughAServer) {
  TestServer server;
  ParameterClient client = client_of(server, {.kind = GetParam(), .top_k = 0.5, .threshold = 3});
  const ShardSpec spec = whole_shard("w", {DType::kFloat32, {5}});
  client.create(spec, [] { return floats({0, 0, 0, 0, 0}); });
  constexpr int kSteps = 64;
  for (int i = 0; i < kSteps; ++i)
    client.push({.shard = "w", .gradient = floats({1, -2, 3, 0.5f, 0}), .learning_rate = 0.25});
  const auto values = values_of(fetch(client, spec));
  const Floats wanted = {-16, 32, -48, -8, 0};
  for (size_t i = 0; i < wanted.size(); ++i) EXPECT_NEAR(values[i], wanted[i], 3) << i;
}

// Of gradients that go together nothing is kept where one of them cannot be sent.
TEST_P(EveryCompression, KeepsNothingOfACallThatIsNotMade) {
  TestServer server;
  ParameterClient client = client_of(server, {.kind = GetParam(), .top_k = 0.25, .threshold = 3});
  const ShardSpec first = whole_shard("v", kFour);
  for (const char* name : {"v", "w"})
    client.create(whole_shard(name, kFour), [] { return floats({0, 0, 0, 0}); });
  const std::vector<ShardPush> both = {
      {.shard = "v", .gradient = floats({70'000.3f, -2.1f, 1, -1}), .learning_rate = 1},
      {.shard = "w", .gradient = floats({1, INFINITY, 1, 1}), .learning_rate = 1}};
  EXPECT_ERROR(client.update(both, {}), Code::kOutOfRange, "shard \"w\"");
  client.push({.shard = "v", .gradient = floats({0, 0, 0, 0}), .learning_rate = 1});
  EXPECT_EQ(values_of(fetch(client, first)), (Floats{0, 0, 0, 0}));
}

TEST_P(EveryCompression, KeepsNothingOfACallThatIsRefused) {
  TestServer server;
  ParameterClient client = client_of(server, {.kind = GetParam(), .top_k = 0.25, .threshold = 3});
  const ShardSpec spec = whole_shard("v", kFour);
  const auto push = [&](const Floats& gradient) {
    client.push({.shard = "v", .gradient = floats(gradient), .learning_rate = 1});
  };
  EXPECT_ERROR(push({70'000.3f, -2.1f, 1, -1}), Code::kNotFound, "shard \"v\"");
  client.create(spec, [] { return floats({0, 0, 0, 0}); });
  push({0, 0, 0, 0});
  EXPECT_EQ(values_of(fetch(client, spec)), (Floats{0, 0, 0, 0}));
}

constexpr CompressionOptions kQuarter{.kind = Compression::kTopK, .top_k = 0.25};

ShardPush gradient_of_v(const Floats& gradient) {
  return {.shard = "v", .gradient = floats(gradient), .learning_rate = 1};
}

TEST(ErrorFeedback, OfAPushStaysWhereOnlyAnotherOfTheCallIsRefused) {
  TestServer server;
  ParameterClient client = client_of(server, kQuarter);
  const ShardSpec spec = whole_shard("v", kFour);
  for (const char* name : {"v", "table"})
    client.create(whole_shard(name, kFour), [] { return floats({0, 0, 0, 0}); });
  const auto with_row = [](int64_t row, const Floats& gradient) {
    return std::vector<ShardPush>{gradient_of_v(gradient),
                                  {.shard = "table",
                                   .gradient = floats({1}),
                                   .learning_rate = 1,
                                   .rows = std::vector<int64_t>{row}}};
  };
  client.update(with_row(0, {1, 8, 0, 0}), {});
  EXPECT_ERROR(client.update(with_row(5, {0, 0, 4, -2}), {}), Code::kOutOfRange, "row 5");
  EXPECT_EQ(values_of(fetch(client, spec)), (Floats{0, -8, -4, 0}));
  for (int i = 0; i < 3; ++i) client.push(gradient_of_v({0, 0, 0, 0}));
  EXPECT_EQ(values_of(fetch(client, spec)), (Floats{-1, -8, -4, 2})) << "each number once";
  EXPECT_EQ(server->statistics().requests_refused, 1u);
}

TEST(ErrorFeedback, GoesOnFromEarlierPushesWhereOneIsDropped) {
  TestServer server({.consistency = {.max_staleness = 0, .num_workers = 2, .backup_workers = 1}});
  const ShardSpec spec = whole_shard("v", kFour);
  ParameterClient quick = client_of(server, kQuarter),
                  slow = client_of(server, kQuarter, "worker:1");
  for (ParameterClient* client : {&quick, &slow}) {
    client->create(spec, [] { return floats({0, 0, 0, 0}); });
    fetch(*client, spec);
  }
  EXPECT_EQ(slow.push(gradient_of_v({8, 1, 0, 0})).outcome, PushOutcome::kApplied);
  fetch(slow, spec);
  fetch(quick, spec);
  EXPECT_EQ(quick.push(gradient_of_v({0, 0, 8, 0})).outcome, PushOutcome::kApplied);
  EXPECT_EQ(slow.push(gradient_of_v({0, 4, 0, 2})).outcome, PushOutcome::kLate);
  for (int i = 0; i < 2; ++i) {
    fetch(slow, spec);
    EXPECT_EQ(slow.push(gradient_of_v({0, 0, 0, 0})).outcome, PushOutcome::kApplied);
  }
  EXPECT_EQ(values_of(fetch(slow, spec)), (Floats{-8, -1, -8, 0})) << "the dropped one alone lacks";
}

// Adds what it is given.
class Adding final : public optim::UpdateRule {
 public:
  std::vector<Slot> slots() const override { return {}; }
  std::vector<Value> scalars(const Value& /*learning_rate*/, const Value& /*step*/) const override {
    return {};
  }
  Value update(const Value& variable, const Value& gradient, std::vector<Value>& /*slots*/,
               const std::vector<Value>& /*scalars*/) const override {
    return variable + gradient;
  }
};

TEST_P(EveryCompression, LeavesInitialValuesAndIntegersAsTheyAre) {
  TestServer server;
  ParameterClient client = client_of(server, {.kind = GetParam()});
  const Floats initial = {0.1f, 100'000.1f, -3e-8f};
  const ShardSpec spec = whole_shard("w", {DType::kFloat32, {3}});
  client.create(spec, [&] { return floats(initial); });
  EXPECT_EQ(values_of(fetch(client, spec)), initial);
  ShardSpec counts = whole_shard("n", {DType::kFloat32, {3}});
  counts.whole.dtype = DType::kInt32;
  counts.update = trace_update(Adding(), counts.whole);
  client.create(counts, [] { return Tensor::zeros(DType::kInt32, {3}); });
  const std::vector<int32_t> given = {1'000'003, -7, 0};
  client.push({.shard = "n", .gradient = Tensor::from(given, {3}), .learning_rate = 1});
  const Tensor there = fetch(client, counts);
  const auto values = there.values<int32_t>();
  EXPECT_EQ(std::vector<int32_t>(values.begin(), values.end()), given);
}

TEST_P(EveryCompression, RefusesOtherSizes) {
  for (const DType dtype : {DType::kFloat32, DType::kFloat64}) {
    const TensorSpec spec{dtype, {8}};
    EXPECT_ERROR(parameter_server::check_compressed(GetParam(), spec, 1000), Code::kInvalidArgument,
                 "1000");
  }
}

TEST(TopK, RefusesPlacesOutsideTheGradient) {
  const uint32_t entry[] = {4, 0};
  Tensor gradient(DType::kFloat32, {4});
  EXPECT_ERROR(
      parameter_server::decompress(Compression::kTopK, reinterpret_cast<const char*>(entry),
                                   sizeof entry, gradient),
      Code::kInvalidArgument, "element 4");
}

TEST(GradientCompressor, RefusesKindsThatThereAreNot) {
  for (const int kind : {-1, kNumCompressions, 99})
    EXPECT_ERROR(GradientCompressor({.kind = static_cast<Compression>(kind)}),
                 Code::kInvalidArgument,
                 str("compression has the kind ", kind, "; allowed: 0 to 7"));
}

TEST(GradientCompressor, RefusesImpossibleShares) {
  for (const double bad : {0.0, -1.0, 1.5, std::nan("")})
    EXPECT_ERROR(GradientCompressor({.top_k = bad}), Code::kInvalidArgument, "top_k");
}

}  // namespace
}  // namespace cohort::testing
