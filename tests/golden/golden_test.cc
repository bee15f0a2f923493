// Files of the releases so far are read, and what is in them is written as the same bytes again.
#include <filesystem>
#include <map>

#include "core/base/error.h"
#include "core/base/file.h"
#include "core/graph/serialization.h"
#include "core/train/safetensors.h"
#include "strategies/parameter_server/change_log.h"
#include "strategies/parameter_server/snapshot.h"
#include "tests/testing/evaluate.h"
#include "tests/train/testing.h"

namespace cohort::testing {
namespace {

using parameter_server::AppliedGradient;
using parameter_server::AssignedPart;
using parameter_server::AssignedRows;
using parameter_server::ChangeLog;
using parameter_server::Marks;
using parameter_server::Shard;
using parameter_server::ShardState;

const std::string kFolder = "tests/golden/release_1";
const Marks kMarks = {{"worker:1", {.incarnation = (uint64_t{1} << 63) + 1, .sequence = 3}}};

std::string golden(const std::string& name) { return kFolder + "/" + name; }

template <typename T>
std::vector<T> values_of(const Tensor& tensor) {
  const auto values = tensor.values<T>();
  return std::vector<T>(values.begin(), values.end());
}

Tensor floats(const std::vector<float>& values) {
  return Tensor::from(values, {static_cast<int64_t>(values.size())});
}

// The files of these names in a folder are those of the release.
void expect_golden(const std::string& folder, const std::vector<std::string>& names) {
  for (const std::string& name : names)
    EXPECT_TRUE(read_file(str(folder, "/", name)) == read_file(golden(name))) << name;
}

TEST(Golden, WeightsOfEveryDType) {
  const Safetensors file = read_safetensors(golden("weights.safetensors"));
  EXPECT_EQ(file.metadata, (Metadata{{"note", "of the first release"}, {"step", "12"}}));
  ASSERT_EQ(file.tensors.size(), 9u);
  const auto tensor = [&](const char* name) { return file.tensors.at(name); };
  EXPECT_EQ(tensor("float32").shape(), Shape({2, 3}));
  EXPECT_EQ(values_of<float>(tensor("float32")), (std::vector<float>{1, -2, 3.5f, 4, 5, -0.25f}));
  EXPECT_EQ(values_of<double>(tensor("float64")), (std::vector<double>{0.5, -2}));
  EXPECT_EQ(values_of<int32_t>(tensor("int32")), (std::vector<int32_t>{7, -7}));
  EXPECT_EQ(tensor("int64").shape().rank(), 0);
  EXPECT_EQ(values_of<int64_t>(tensor("int64")), std::vector<int64_t>{-(int64_t{1} << 40)});
  EXPECT_EQ(values_of<uint8_t>(tensor("uint8")), (std::vector<uint8_t>{1, 2, 255}));
  EXPECT_EQ(values_of<bool>(tensor("bool")), (std::vector<bool>{true, false}));
  EXPECT_EQ(static_cast<float>(values_of<bfloat16>(tensor("bfloat16"))[1]), -2);
  EXPECT_EQ(static_cast<float>(values_of<float16>(tensor("float16"))[1]), -2);
  EXPECT_EQ(tensor("none").spec(), (TensorSpec{DType::kFloat32, {0, 4}}));

  const std::string folder = make_folder();
  write_safetensors(folder + "/weights.safetensors", file);
  expect_golden(folder, {"weights.safetensors"});
}

// Of a dense layer under Adam, after the first epoch.
TEST(Golden, ABackupIsGoneOnFrom) {
  const std::string folder = make_folder();
  std::filesystem::copy_file(golden("backup.safetensors"), folder + "/backup.safetensors");
  auto model = nn::Sequential({nn::Dense(2)});
  model.build({{DType::kFloat32, {1, 2}}});
  model.compile({.optimizer = optim::Adam(0.5),
                 .loss = losses::SparseCategoricalCrossentropy({.from_logits = true})});

  std::map<std::string, std::vector<double>> found;
  auto hooks = std::make_shared<Hooks>();
  hooks->epoch_begin = [&](Training& training) {
    EXPECT_EQ(training.epoch(), 1);
    EXPECT_EQ(training.total_steps(), 8);
    for (const auto& variables : {model.variables(), model.optimizer().variables()})
      for (const auto& variable : variables) {
        const Tensor value = variable->value();
        auto& numbers = found[variable->name()];
        dispatch(NumberTypes{}, value.dtype(), "a variable", [&]<typename T>() {
          for (const T number : value.values<T>()) numbers.push_back(static_cast<double>(number));
        });
      }
  };
  model.fit(points(8).batch(4), {.epochs = 2,
                                 .callbacks = {hooks, callbacks::BackupAndRestore(folder)},
                                 .verbose = Verbose::kSilent});
  const std::map<std::string, std::vector<double>> expected = {
      {"dense/bias", {0, 1}},
      {"dense/kernel", {0.5, -1.5, 2, 0.25}},
      {"optimizer/iterations", {8}},
      {"optimizer/learning_rate", {0.125}},
      {"optimizer/momentum/dense/bias", {5, 6}},
      {"optimizer/momentum/dense/kernel", {1, 2, 3, 4}},
      {"optimizer/velocity/dense/bias", {11, 12}},
      {"optimizer/velocity/dense/kernel", {7, 8, 9, 10}}};
  EXPECT_EQ(found, expected);
}

TEST(Golden, TheSnapshotOfAParameterServer) {
  std::vector<ShardState> shards;
  for (const auto& saved : parameter_server::read_snapshot(kFolder)) shards.push_back(saved.load());
  ASSERT_EQ(shards.size(), 2u);
  const ShardState &part = shards[0], &table = shards[1];
  EXPECT_EQ(part.spec.name, "w/part_1");
  EXPECT_EQ(part.spec.variable, "w");
  EXPECT_EQ(part.spec.whole, (TensorSpec{DType::kFloat32, {5, 2}}));
  EXPECT_EQ(part.spec.begin, 3);
  EXPECT_EQ(part.spec.rows, 2);
  EXPECT_EQ(part.spec.update.dense, "a function");
  ASSERT_EQ(part.spec.update.slots.size(), 1u);
  EXPECT_EQ(part.spec.update.slots[0].name, "momentum");
  EXPECT_EQ(part.spec.update.slots[0].initial, 0.5);
  EXPECT_EQ(part.version, 9u);
  EXPECT_EQ(part.updates, 8u);
  EXPECT_EQ(part.marks, kMarks);
  ASSERT_EQ(part.parts.size(), 2u);
  EXPECT_EQ(values_of<float>(part.parts[0]), (std::vector<float>{1, 2, 3, 4}));
  EXPECT_EQ(values_of<float>(part.parts[1]), (std::vector<float>{0.5f, 0.5f, -1, 0}));

  const RowInitializer uniform{
      .kind = RowInitializer::Kind::kUniform, .a = -0.5, .b = 0.5, .seed = 7, .max_rows = 100};
  EXPECT_EQ(table.spec.lazy, uniform);
  EXPECT_EQ(table.row_ids, (std::vector<int64_t>{4, 17}));
  EXPECT_EQ(values_of<float>(table.parts.at(0)), (std::vector<float>{1, 2, 3, 4, 5, 6}));

  const std::string folder = make_folder();
  parameter_server::SnapshotWriter writer(folder);
  for (const ShardState& shard : shards) writer.add(shard);
  writer.commit();
  expect_golden(folder, {"snapshot.json", "shards-1"});
}

// The shards of the log: one that is made with its value, and a table with rows on first use. The
// log has a gradient of another, which is not there any more.
ShardSpec logged_variable() {
  return {.name = "w", .variable = "w", .whole = {DType::kFloat32, {2}}, .rows = 2};
}
ShardSpec logged_table() {
  return {.name = "table",
          .variable = "table",
          .whole = {DType::kFloat32, {1000, 2}},
          .rows = 1000,
          .lazy = RowInitializer{.a = 0.5, .seed = 7, .max_rows = 100}};
}
const std::vector<int64_t> kLoggedRows = {4, 17};
const std::vector<float> kLoggedValues = {1, 2, 3, 4};

TEST(Golden, TheLogOfAParameterServerIsReplayed) {
  parameter_server::BufferCache buffers(0);
  std::map<std::string, std::shared_ptr<Shard>> shards;
  std::map<std::string, uint64_t> versions;
  const uint64_t changes = parameter_server::replay_log(
      kFolder, {.create =
                    [&](const ShardSpec& spec, const Tensor& initial, uint64_t) {
                      shards[spec.name] = std::make_shared<Shard>(
                          spec, initial, Shard::Environment{.epoch = 1, .buffers = &buffers});
                    },
                .find = [&](const std::string& name, uint64_t version) -> std::shared_ptr<Shard> {
                  versions[name] = version;
                  return shards.contains(name) ? shards[name] : nullptr;
                },
                .notice = [](const std::string& line) { ADD_FAILURE() << line; }});
  EXPECT_EQ(changes, 2u);
  EXPECT_EQ(versions, (std::map<std::string, uint64_t>{{"gone", 7}, {"table", 1}, {"w", 5}}));
  ASSERT_EQ(shards.size(), 2u);
  EXPECT_EQ(values_of<float>(shards["w"]->part(0)), (std::vector<float>{3, -4}));
  EXPECT_EQ(shards["w"]->marks(), kMarks);
  EXPECT_EQ(shards["table"]->spec().lazy, logged_table().lazy);
  std::vector<float> rows(4);
  shards["table"]->pull_rows(0, kLoggedRows, reinterpret_cast<char*>(rows.data()));
  EXPECT_EQ(rows, kLoggedValues);
}

TEST(Golden, TheLogOfAParameterServerIsWritten) {
  const std::string folder = make_folder();
  ChangeLog log(folder, false);
  log.add(logged_variable(), floats({1, 2}));
  log.add({.shard = "w",
           .version = 5,
           .marks = kMarks,
           .what = AssignedPart{.part = 0, .value = floats({3, -4})}});
  log.add(logged_table(), Tensor());
  log.add({.shard = "table",
           .version = 1,
           .marks = {},
           .what = AssignedRows{.rows = kLoggedRows,
                                .values = reinterpret_cast<const char*>(kLoggedValues.data()),
                                .value_bytes = kLoggedValues.size() * sizeof(float)}});
  log.add({.shard = "gone",
           .version = 7,
           .marks = {},
           .what = AppliedGradient{.values = floats({1, -2}),
                                   .rows = std::vector<int64_t>{1},
                                   .learning_rate = 0.1,
                                   .number = 8}});
  expect_golden(folder, {"changes-1"});
}

// x * (3, 4) + w.
TEST(Golden, ATracedFunction) {
  const std::string bytes = read_file(golden("function.graph"));
  auto w = std::make_shared<TestVariable>("w", floats({10, 20}));
  const GraphFunction function = import_function(bytes, [&](const std::string&) { return w; });
  EXPECT_EQ(values_of<float>(evaluate(function.outputs, {floats({1, 2})}).at(0)),
            (std::vector<float>{13, 28}));
  EXPECT_TRUE(serialize_function(function) == bytes);
}

}  // namespace
}  // namespace cohort::testing
