// Tables under ParameterServerStrategy: looked up, and with rows on first use.
#include <algorithm>
#include <numeric>

#include "core/ops/array_ops.h"
#include "core/ops/embedding_ops.h"
#include "core/ops/math_ops.h"
#include "core/train/safetensors.h"
#include "tests/strategies/parameter_server/job.h"

namespace cohort::testing {
namespace {

TEST(LazyTable, OfAVocabularyTooLargeForMemoryIsTrained) {
  constexpr int64_t kVocabulary = int64_t{1} << 40;
  const Job job(2, 1, {.rows_on_first_use = [](const std::string& name, const TensorSpec&) {
                  return name.find("embeddings") == std::string::npos
                             ? std::nullopt
                             : std::optional(RowInitializer{
                                   .kind = RowInitializer::Kind::kUniform, .a = -0.1, .b = 0.1});
                }});
  const auto strategy = job.worker(0);
  const auto scope = strategy->scope();
  auto model = nn::Sequential({nn::Embedding(kVocabulary, 16), nn::Flatten(), nn::Dense(1)});
  model.compile({.optimizer = optim::Adagrad(0.5), .loss = losses::MeanSquaredError()});
  constexpr int64_t kExamples = 32;
  Tensor ids(DType::kInt64, {kExamples, 2}), label(DType::kFloat32, {kExamples, 1});
  RandomStream random(3);
  for (int64_t i = 0; i < kExamples; ++i) {
    for (int64_t c = 0; c < 2; ++c)
      ids.data<int64_t>()[2 * i + c] = static_cast<int64_t>(random.below(uint64_t{kVocabulary}));
    label.data<float>()[i] = static_cast<float>(i % 2);
  }
  const auto data = data::from_tensor_slices({{"ids", ids}, {"label", label}}).batch(8);
  const History history = model.fit(data, {.epochs = 20, .verbose = Verbose::kSilent});
  EXPECT_LT(history["loss"].back(), 0.02) << "each example has rows of its own";
  EXPECT_LT(history["loss"].back(), history["loss"].front() / 5);
  EXPECT_LE(job.sum(&ServerStatistics::rows), 2 * kExamples + 100);
  EXPECT_ERROR(model.variables()[0]->value(), Code::kUnimplemented, "embeddings");
}

TEST(LazyTable, NeedsAnOptimizerThatLeavesOtherRowsAlone) {
  const Job job(1, 1, {.rows_on_first_use = [](const std::string&, const TensorSpec&) {
                  return std::optional(RowInitializer{});
                }});
  const auto strategy = job.worker(0);
  const auto scope = strategy->scope();
  const auto table = counting("table", {1000, 4});
  EXPECT_ERROR(optim::Adam(0.1).build({table}), Code::kInvalidArgument, "\"table\"");
  optim::Adam(0.1, {.lazy = true}).build({table});
}

TEST(LazyTable, IsNamedWhereAllOfItWouldBeReadOrWritten) {
  const Job job(1, 1, {.rows_on_first_use = [](const std::string&, const TensorSpec&) {
                  return std::optional(RowInitializer{});
                }});
  const auto strategy = job.worker(0);
  const auto scope = strategy->scope();
  const auto table = counting("table", {1000, 4});
  const Tensor all = Tensor::zeros(DType::kFloat32, {1000, 4});
  const auto refusal = [](const std::string& call) {
    return str("variable \"table\" float32[1000,4] makes its rows on first use, and is not ", call,
               " as a whole");
  };
  EXPECT_ERROR(table->value(), Code::kUnimplemented, refusal("read"));
  EXPECT_ERROR(table->assign(all), Code::kUnimplemented, refusal("assigned"));
  EXPECT_ERROR(table->assign_add(all), Code::kUnimplemented, refusal("added to"));
  EXPECT_ERROR(table->assign_sub(all), Code::kUnimplemented, refusal("subtracted from"));
}

constexpr int64_t kWords = int64_t{1} << 40;

// What an optimizer keeps beside its slots is for variables that fit into memory.
TEST(LazyTable, HasNothingKeptForEveryRow) {
  const Job job(1, 1, {.rows_on_first_use = [](const std::string& name, const TensorSpec&) {
                  return name == "table" ? std::optional(RowInitializer{}) : std::nullopt;
                }});
  const auto strategy = job.worker(0);
  const auto scope = strategy->scope();
  const auto table = counting("table", {kWords, 4}), dense = counting("dense", {64, 64});
  const auto sgd = [](const optim::GradientOptions& gradients) {
    return optim::SGD(0.1, {.gradients = gradients});
  };
  EXPECT_ERROR(sgd({.accumulation_steps = 2}).build({table}), Code::kInvalidArgument, "\"table\"");
  auto optimizer = sgd({.power_sgd = optim::PowerSgdOptions{}});
  optimizer.build({table, dense});
  std::string residuals;
  for (const auto& variable : optimizer.variables())
    if (variable->name().find("power_sgd_residual") != std::string::npos)
      residuals += variable->name() + " ";
  EXPECT_EQ(residuals, "optimizer/power_sgd_residual/dense ");
}

// By an optimizer that moves all rows, each step changes every shard, looked up or not.
TEST(EmbeddingLookup, OfOneShardLeavesTheOthersNoStalerForIt) {
  const auto make_model = [] {
    set_global_seed(7);
    auto model = nn::Sequential({nn::Embedding(16, 4), nn::Flatten(), nn::Dense(1)});
    model.build({{DType::kInt64, {1, 1}}});
    model.compile({.optimizer = optim::Adam(0.05), .loss = losses::MeanSquaredError()});
    return model;
  };
  // For a while only the first of four shards, and then the last.
  const std::vector<int64_t> ids = {0, 1, 2, 3, 0, 1, 15, 14, 13, 12};
  const auto rows = static_cast<int64_t>(ids.size());
  const auto data =
      data::from_tensor_slices({{"ids", Tensor::from(ids, {rows, 1})},
                                {"label", Tensor::full(DType::kFloat32, {rows, 1}, 1)}})
          .batch(1);
  const auto train = [&] {
    Model model = make_model();
    const History history = model.fit(data, {.epochs = 2, .verbose = Verbose::kSilent});
    return std::pair(std::move(model), history);
  };
  const Job job(1, 1, {.scale_learning_rate = true, .partitioner = FixedShardsPartitioner(4)});
  expect_trained_as(train().first, job, [&](ParameterServerStrategy&) {
    const auto [model, history] = train();
    EXPECT_EQ(history["staleness_max"].back(), 0);
    return model;
  });
}

Options with_lazy_rows() {
  return {.rows_on_first_use = [](const std::string& name, const TensorSpec&) {
    return name.find("embeddings") == std::string::npos
               ? std::nullopt
               : std::optional(RowInitializer{
                     .kind = RowInitializer::Kind::kUniform, .a = -0.1, .b = 0.1, .seed = 4});
  }};
}

Model word_model() {
  set_global_seed(7);
  auto model = nn::Sequential({nn::Embedding(kWords, 4), nn::Flatten(), nn::Dense(1)});
  model.build({{DType::kInt64, {1, 2}}});
  model.compile(
      {.optimizer = optim::Adam(0.05, {.lazy = true}), .loss = losses::MeanSquaredError()});
  return model;
}

data::Dataset words(const std::vector<int64_t>& ids) {
  const auto rows = static_cast<int64_t>(ids.size()) / 2;
  return data::from_tensor_slices({{"ids", Tensor::from(ids, {rows, 2})},
                                   {"label", Tensor::full(DType::kFloat32, {rows, 1}, 1)}})
      .batch(2);
}

TEST(LazyTable, IsSavedAsTheRowsInUseAndGoesOnInOtherServers) {
  const TemporaryFolder folder("ps");
  const std::string path = folder.path() + "/words.safetensors";
  const auto data = words({3, kWords - 1, kWords / 2, 3, kWords / 2 + 1, 17, 5, 3});
  const auto other = words({3, 900, 901, kWords - 2});
  const auto run = [&](int servers, const std::vector<int>& epochs, bool loads) {
    const Job job(servers, 1, with_lazy_rows());
    const auto strategy = job.worker(0);
    const auto scope = strategy->scope();
    Model model = word_model();
    if (loads) {
      // What is there already does not stay.
      model.fit(other, {.epochs = 1, .verbose = Verbose::kSilent});
      model.load_checkpoint(path);
    }
    for (const int count : epochs) {
      model.fit(data, {.epochs = count, .verbose = Verbose::kSilent});
      if (!loads) model.save_checkpoint(path);
    }
    std::vector<std::vector<float>> all;
    for (const auto& variable : model.variables()) {
      const auto& v = on_servers(variable);
      all.push_back(
          values_of(v.is_lazy() ? v.lookup({3, 5, 17, 900, 901, kWords / 2, kWords - 2, kWords - 1})
                                : v.value()));
    }
    return all;
  };
  run(2, {2}, false);
  const Safetensors file = read_safetensors(path);
  EXPECT_EQ(file.tensors.at("embedding/embeddings#rows").spec(), (TensorSpec{DType::kInt64, {6}}));
  EXPECT_EQ(file.tensors.at("embedding/embeddings#values").shape(), Shape({6, 4}));
  EXPECT_TRUE(file.tensors.contains("optimizer/momentum/embedding/embeddings#values"));
  const auto expected = run(2, {2, 3}, false);
  run(2, {2}, false);
  EXPECT_EQ(run(3, {3}, true), expected);
}

TEST(LazyTable, KeepsItsRowsWhenAnotherOptimizerTakesItOver) {
  const Job job(2, 1, with_lazy_rows());
  const auto strategy = job.worker(0);
  const auto scope = strategy->scope();
  Model model = word_model();
  model.fit(words({3, kWords - 1, kWords / 2, 5}), {.epochs = 2, .verbose = Verbose::kSilent});
  const auto variable = model.variables()[0];
  const ServerVariable& table = on_servers(variable);
  const auto rows = [&] { return values_of(table.lookup({3, 5, 17, kWords / 2, kWords - 1})); };
  const std::vector<float> trained = rows();
  optim::Adagrad(0.1).build({variable});
  EXPECT_EQ(rows(), trained);
  EXPECT_EQ(table.rows_in_use().numbers.num_elements(), 4) << "and no others";
}

// Of a table with rows on first use, which several workers have.
Options with_lazy_table() {
  return {.rows_on_first_use = [](const std::string& name, const TensorSpec&) {
    return name == "table" ? std::optional(RowInitializer{}) : std::nullopt;
  }};
}
VariablePtr make_table(ParameterServerStrategy& worker) {
  const auto scope = worker.scope();
  const VariablePtr table = counting("table", {kWords, 2});
  EXPECT_EQ(on_servers(table).lookup({1}).num_elements(), 2) << "it is there";
  return table;
}
void set_rows(const VariablePtr& table, const std::vector<int64_t>& rows, float number) {
  const auto count = static_cast<int64_t>(rows.size());
  on_servers(table).assign_rows(
      {Tensor::from(rows, {count}), Tensor::full(DType::kFloat32, {count, 2}, number)});
}
void take_over(ParameterServerStrategy& worker, const VariablePtr& table) {
  const auto scope = worker.scope();
  optim::SGD(1).build({table});
}

// Of two workers, the first that the optimizer has the table for brings the rows along.
TEST(LazyTable, KeepsWhatOthersHaveTrainedSinceAnOptimizerTookItOver) {
  const Job job(1, 2, with_lazy_table());
  const auto first = job.worker(0), second = job.worker(1);
  const VariablePtr of_first = make_table(*first), of_second = make_table(*second);
  set_rows(of_first, {1}, 3);
  take_over(*first, of_first);
  EXPECT_EQ(values_of(on_servers(of_first).row(1)), (std::vector<float>{3, 3}));
  set_rows(of_first, {1}, 5);
  take_over(*second, of_second);
  EXPECT_EQ(values_of(on_servers(of_second).row(1)), (std::vector<float>{5, 5}));
}

// Meanwhile the first worker trains on under the optimizer, and the table of before has got a row
// that it has not seen.
TEST(LazyTable, GetsFromEachWorkerTheRowsThatAreMissing) {
  const Job job(1, 2, with_lazy_table());
  const auto first = job.worker(0), second = job.worker(1);
  const VariablePtr of_first = make_table(*first), of_second = make_table(*second);
  set_rows(of_first, {1}, 3);
  take_over(*first, of_first);
  set_rows(of_first, {1}, 5);
  set_rows(of_second, {1, 2}, 4);
  take_over(*second, of_second);
  EXPECT_EQ(values_of(on_servers(of_second).lookup({1, 2})), (std::vector<float>{5, 5, 4, 4}));
}

// The server has memory for the first of the blocks in which rows are moved, not for the second.
TEST(LazyTable, IsTakenOverFromWhereAnAttemptBrokeOff) {
  constexpr int64_t kColumns = 1 << 18, kRowBytes = 4 * kColumns;
  constexpr int64_t kInBlock = 16, kInUse = kInBlock + 1, kOther = 2;  // value and slot
  const auto all_of = [](int64_t rows, float number) {
    return Tensor::full(DType::kFloat32, {rows, kColumns}, number);
  };
  const TemporaryFolder folder("ps");
  TestServer server({.max_bytes = (kInUse + kInBlock + kOther) * kRowBytes + kRowBytes / 2});
  const auto client = server.client();
  client->create(wide_table("other"), [] { return Tensor(); });
  client->snapshot(folder.path());
  client->assign_rows("other", {1}, all_of(1, 1), 0, false);

  const auto session = std::make_shared<ServerSession>(
      std::vector{server.address()}, ParameterClientOptions{.task = "worker:1", .job_id = "job"},
      ConsistencyOptions{}, no_environment);
  const auto table = std::make_shared<ServerVariable>(
      ServerVariable::Options{
          .variable = {.name = "table", .spec = {DType::kFloat32, {1000, kColumns}}},
          .servers = {0},
          .lazy = RowInitializer{}},
      session);
  std::vector<int64_t> rows(kInUse);
  std::iota(rows.begin(), rows.end(), int64_t{0});
  table->assign_rows({Tensor::from(rows, {kInUse}), all_of(kInUse, 3)});
  table->move_by(optim::SGD(1).rule(), 0, {});
  const std::string shard = "table@1/part_0";
  EXPECT_ERROR(table->row(0), Code::kResourceExhausted, shard);
  rows.pop_back();
  ASSERT_EQ(client->rows_in_use(shard), rows) << "in the middle";

  client->assign_rows(shard, {0}, all_of(1, 5), 0, false);  // as somebody who trains
  client->restore(folder.path());                           // without the other table's row
  EXPECT_EQ(values_of(table->row(0)).back(), 5);
  EXPECT_EQ(values_of(table->row(1)).back(), 3);
  EXPECT_EQ(values_of(table->row(kInBlock)).back(), 3);
  EXPECT_EQ(table->rows_in_use().numbers.num_elements(), kInUse);
}

TEST(LazyTable, RefusesRowsThatDoNotFit) {
  const TemporaryFolder folder("ps");
  const std::string path = folder.path() + "/words.safetensors";
  const Job job(1, 1, with_lazy_rows());
  const auto strategy = job.worker(0);
  const auto scope = strategy->scope();
  const Model model = word_model();
  const auto table = model.variables()[0];
  const auto load = [&](const std::vector<int64_t>& rows, const Shape& values) {
    Safetensors file;
    if (!rows.empty()) {
      file.tensors[table->name() + "#rows"] =
          Tensor::from(rows, {static_cast<int64_t>(rows.size())});
      file.tensors[table->name() + "#values"] = Tensor::full(DType::kFloat32, values, 1);
    }
    write_safetensors(path, file);
    load_variables(path, {table});
  };
  EXPECT_ERROR(load({}, {}), Code::kInvalidArgument, "missing: embedding/embeddings#rows");
  EXPECT_ERROR(load({1, 2}, {2, 3}), Code::kInvalidArgument, "embedding/embeddings is");
  EXPECT_ERROR(load({1, 1}, {2, 4}), Code::kInvalidArgument, "row 1 after row 1");
  EXPECT_ERROR(load({1, kWords}, {2, 4}), Code::kInvalidArgument, "there are");
  const auto load_into = [&](const VariablePtr& variable, const Tensors& tensors) {
    write_safetensors(path, {.tensors = tensors});
    load_variables(path, {variable});
  };
  const Tensor two = Tensor::zeros(DType::kFloat32, {2, 4});
  EXPECT_ERROR(load_into(table, {{table->name(), two}}), Code::kInvalidArgument,
               "in the file it has all rows, and here it makes them on first use");
  const auto ordinary =
      make_local_variable({.name = "v", .spec = two.spec(), .initial_value = [&] { return two; }});
  EXPECT_ERROR(
      load_into(ordinary, {{"v#rows", Tensor::from<int64_t>({0, 1}, {2})}, {"v#values", two}}),
      Code::kInvalidArgument, "in the file it makes its rows on first use, and here it has all");
  EXPECT_EQ(job.sum(&ServerStatistics::rows), 0u);
  load({1, kWords - 1}, {2, 4});
  EXPECT_EQ(values_of(on_servers(table).row(-1)), (std::vector<float>{1, 1, 1, 1}));
}

TEST(EmbeddingLookup, MovesItsRowsAlone) {
  constexpr int64_t kVocabulary = 100'000;
  const Job job(2, 1, {.partitioner = FixedShardsPartitioner(4)});
  const auto strategy = job.worker(0);
  const auto scope = strategy->scope();
  auto model = nn::Sequential({nn::Embedding(kVocabulary, 4), nn::Flatten(), nn::Dense(1)});
  model.compile({.optimizer = optim::SGD(0.1), .loss = losses::MeanSquaredError()});
  const auto data =
      data::from_tensor_slices({{"ids", Tensor::from<int64_t>({1, 99'999, 1, 5}, {2, 2})},
                                {"label", Tensor::zeros(DType::kFloat32, {2, 1})}})
          .batch(2);
  model.fit(data, {.epochs = 1, .verbose = Verbose::kSilent});
  const uint64_t sent = job.sum(&ServerStatistics::sent_bytes),
                 received = job.sum(&ServerStatistics::received_bytes);
  model.fit(data, {.epochs = 1, .verbose = Verbose::kSilent});
  EXPECT_LT(job.sum(&ServerStatistics::sent_bytes) - sent, 1000u);
  EXPECT_LT(job.sum(&ServerStatistics::received_bytes) - received, 1000u);
}

// Rows 1 2, 3 4, ... of a table in three parts.
class SparseLookup : public ::testing::Test {
 protected:
  VariablePtr table(int64_t rows) const {
    const VariablePtr made = counting("table", {rows, 2});
    made->assign_add(Tensor::full(DType::kFloat32, {rows, 2}, 1));
    return made;
  }
  // The result, after the bytes that servers have sent for it.
  std::vector<float> expect_sent(uint64_t bytes, const StepFunction<Value>& step) {
    const uint64_t before = job_.sum(&ServerStatistics::sent_bytes);
    const Tensor result = strategy_->run(step)[0];
    EXPECT_EQ(job_.sum(&ServerStatistics::sent_bytes) - before, bytes);
    return values_of(result);
  }

  const Job job_{2, 1, {.partitioner = FixedShardsPartitioner(3)}};
  const std::unique_ptr<ParameterServerStrategy> strategy_ = job_.worker(0);
  const Strategy::Scope scope_{*strategy_};
};

TEST_F(SparseLookup, PullsTheRowsItCombinesAlone) {
  constexpr uint64_t kRowBytes = 8;
  const VariablePtr v = table(5);
  std::vector<int64_t> shards;
  for (const auto& shard : on_servers(v).shards()) shards.push_back(shard.rows.rows());
  EXPECT_EQ(shards, (std::vector<int64_t>{2, 2, 1}));
  const auto constant = [](std::vector<int64_t> ids, const Shape& shape) {
    return ops::constant(Tensor::from<int64_t>(ids, shape));
  };
  const auto lookup = strategy_->function([&] {
    return ops::gather(v->read(), constant({0, 3, 4}, {3}));
  });
  EXPECT_EQ(expect_sent(3 * kRowBytes, lookup), (std::vector<float>{1, 2, 7, 8, 9, 10}));
  const auto mean = strategy_->function([&] {
    return ops::embedding_lookup_sparse(v->read(),
                                        constant({0, 3, -1, 4, -1, -1, -1, -1, 1}, {3, 3}));
  });
  EXPECT_EQ(expect_sent(4 * kRowBytes, mean), (std::vector<float>{4, 5, 9, 10, 3, 4}));
  const auto safe = strategy_->function([&] {
    const Value weights = ops::constant(Tensor::from<float>({1, 1, -1, 1, 1, 1}, {3, 2}));
    return ops::safe_embedding_lookup_sparse(v->read(), constant({0, -1, 4, -1, -1, 1}, {3, 2}),
                                             weights);
  });
  EXPECT_EQ(expect_sent(2 * kRowBytes, safe), (std::vector<float>{1, 2, 0, 0, 3, 4}));
}

TEST_F(SparseLookup, TrainsItsRowsAlone) {
  constexpr int64_t kRows = 100'000;
  const VariablePtr v = table(kRows);
  optim::Optimizer optimizer = optim::SGD(1);
  const auto step = strategy_->function([&](const Value& ids) {
    const Value loss = ops::reduce_sum(ops::safe_embedding_lookup_sparse(
        v->read(), ids, {}, {.combiner = ops::Combiner::kSum, .default_id = 7}));
    optimizer.minimize(loss, {v});
    return loss;
  });
  const Tensor ids = Tensor::from<int32_t>({99'999, 3, 3, -1, -1, -5}, {3, 2});
  strategy_->run(step, ids);
  const uint64_t sent = job_.sum(&ServerStatistics::sent_bytes),
                 received = job_.sum(&ServerStatistics::received_bytes);
  EXPECT_EQ(strategy_->run(step, ids)[0].item(), (199'998 + 199'999) + 2 * (5 + 6) + (14 + 15));
  EXPECT_LT(job_.sum(&ServerStatistics::sent_bytes) - sent, 1000u);
  EXPECT_LT(job_.sum(&ServerStatistics::received_bytes) - received, 1000u);
  EXPECT_EQ(values_of(on_servers(v).lookup({99'999, 3, 7, 0})),
            (std::vector<float>{199'997, 199'998, 3, 4, 13, 14, 1, 2}));
}

TEST(Lookup, OfASlicePullsItsRowsAlone) {
  const Job job(2, 1, {.partitioner = FixedShardsPartitioner(3)});
  const auto strategy = job.worker(0);
  const auto scope = strategy->scope();
  const auto variable = counting("v", {8, 2});  // row i is 2 i, 2 i + 1
  const ServerVariable& v = on_servers(variable);
  variable->value();
  const auto firsts = [&](const RowSlice& slice) {
    const Tensor rows = v.slice(slice);
    std::vector<float> numbers;
    for (int64_t i = 0; i < rows.shape()[0]; ++i) numbers.push_back(rows.data<float>()[2 * i] / 2);
    return numbers;
  };
  EXPECT_EQ(firsts({.step = 3}), (std::vector<float>{0, 3, 6}));
  EXPECT_EQ(firsts({.begin = 5, .end = -1}), (std::vector<float>{5, 6}));
  EXPECT_EQ(firsts({.begin = 2, .end = -8, .step = -1}), (std::vector<float>{2, 1}));
  EXPECT_EQ(firsts({.step = -5}), (std::vector<float>{7, 2}));
  EXPECT_EQ(firsts({.begin = 6, .end = 5, .step = -6}), (std::vector<float>{6}));
  EXPECT_TRUE(firsts({.begin = 5, .end = 3}).empty());
  EXPECT_EQ(values_of(v.row(-1)), (std::vector<float>{14, 15}));
  EXPECT_EQ(values_of(v.lookup({4, -1, 4})), (std::vector<float>{8, 9, 0, 0, 8, 9}));
  EXPECT_ERROR(v.row(100), Code::kOutOfRange,
               "row 100 of variable \"v\" float32[8,2] (allowed: -8 to 7)");
  EXPECT_ERROR(v.row(-9), Code::kOutOfRange,
               "row -9 of variable \"v\" float32[8,2] (allowed: -8 to 7)");
  EXPECT_ERROR(v.lookup({8}), Code::kOutOfRange, "(allowed: 0 to 7, and -1 for zeros)");
  EXPECT_ERROR(v.slice({.step = 0}), Code::kInvalidArgument, "variable \"v\": a slice has step 0");
  const auto step = strategy->function([&] {
    return ops::slice(variable->read(), {0, 0}, {8, 1});
  });
  EXPECT_EQ(values_of(strategy->run(step)[0]), (std::vector<float>{0, 2, 4, 6, 8, 10, 12, 14}));

  const auto large = counting("large", {1 << 16, 4});
  large->value();
  const uint64_t sent = job.sum(&ServerStatistics::sent_bytes);
  EXPECT_EQ(on_servers(large).slice({.begin = -2}).shape(), Shape({2, 4}));
  EXPECT_LT(job.sum(&ServerStatistics::sent_bytes) - sent, 500u);
}

TEST(Lookup, OfManyRowsPullsThemInBlocks) {
  constexpr int64_t kRows = 3 << 20;
  const Job job(2, 1, {.partitioner = FixedShardsPartitioner(3)});
  const auto strategy = job.worker(0);
  const auto scope = strategy->scope();
  const auto v = counting("v", {kRows, 2});
  const Tensor rows = on_servers(v).slice({.step = -1});
  ASSERT_EQ(rows.shape(), Shape({kRows, 2}));
  const auto values = rows.values<float>();
  for (int64_t i = 0; i < kRows; ++i)
    ASSERT_EQ(values[static_cast<size_t>(2 * i)], static_cast<float>(2 * (kRows - 1 - i))) << i;
}

// --- Initial values

TEST(InitialRows, AreMadeShardByShard) {
  std::vector<RowRange> made;
  std::mutex mutex;  // servers are asked side by side
  const auto identity = [&](const RowRange& rows) {
    const std::lock_guard lock(mutex);
    made.push_back(rows);
    Tensor part = Tensor::zeros(DType::kFloat32, {rows.rows(), 4});
    for (int64_t i = 0; i < rows.rows(); ++i) part.data<float>()[5 * i + rows.begin] = 1;
    return part;
  };
  const Job job(2, 1,
                {.partitioner = FixedShardsPartitioner(3),
                 .initial_rows = [&](const std::string& name, const TensorSpec&) {
                   return name == "identity" ? std::function<Tensor(const RowRange&)>(identity)
                                             : nullptr;
                 }});
  const auto strategy = job.worker(0);
  const auto scope = strategy->scope();
  const auto variable =
      create_variable({.name = "identity", .spec = {DType::kFloat32, {4, 4}}, .initial_value = [] {
                         ADD_FAILURE() << "the whole matrix is not asked for";
                         return Tensor::zeros(DType::kFloat32, {4, 4});
                       }});
  optim::SGD(0.1).build({variable});
  const std::vector<float> expected = {1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1};
  EXPECT_EQ(values_of(variable->value()), expected);
  std::ranges::sort(made, {}, &RowRange::begin);
  EXPECT_EQ(made, (std::vector<RowRange>{{0, 2}, {2, 3}, {3, 4}}));
  EXPECT_EQ(values_of(counting("other", {2})->value()), (std::vector<float>{0, 1}));
}

TEST(InitialRows, ThatHaveNoValueAreNamed) {
  const Job job(1, 1, {.initial_rows = [](const std::string&, const TensorSpec&) {
                  return [](const RowRange&) { return Tensor(); };
                }});
  const auto strategy = job.worker(0);
  const auto scope = strategy->scope();
  const auto variable = counting("w", {4, 4});
  EXPECT_ERROR(variable->value(), Code::kInvalidArgument,
               "float32[4,4], its initial value is a tensor that has no value");
}

// --- Rows on first use

TEST(LazyTable, IsPartOfAFunctionalModelToo) {
  const Job job(2, 1, {.rows_on_first_use = [](const std::string& name, const TensorSpec&) {
                  return name.find("embeddings") == std::string::npos
                             ? std::nullopt
                             : std::optional(RowInitializer{.a = 0.5});
                }});
  const auto strategy = job.worker(0);
  const auto scope = strategy->scope();
  constexpr int64_t kVocabulary = int64_t{1} << 40;
  const auto ids = nn::Input({2}, {.dtype = DType::kInt64, .name = "ids"});
  const auto rows = nn::Flatten()(nn::Embedding(kVocabulary, 16)(ids));
  const Model model = nn::Functional({ids}, nn::Dense(1, {.use_bias = false})(rows));
  model.variables()[1]->assign(Tensor::full(DType::kFloat32, {32, 1}, 1));
  const auto step = strategy->function([&](const Value& x) { return model(x); });
  const Tensor number = Tensor::from<int64_t>({kVocabulary - 1, 3}, {1, 2});
  EXPECT_EQ(strategy->run(step, number)[0].item(), 16);
}

}  // namespace
}  // namespace cohort::testing
