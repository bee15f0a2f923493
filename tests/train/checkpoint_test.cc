#include <chrono>
#include <filesystem>
#include <functional>

#include "tests/testing/file_size_limit.h"
#include "tests/train/testing.h"

namespace cohort {
namespace {

using cohort::testing::bits;
using cohort::testing::classifier;
using cohort::testing::contents;
using cohort::testing::error_of;
using cohort::testing::Hooks;
using cohort::testing::make_folder;
using cohort::testing::points;

constexpr auto kSilent = Verbose::kSilent;

TEST(Checkpoint, HoldsWeightsAndTheOptimizersState) {
  const std::string path = make_folder() + "/model.safetensors";
  auto trained = classifier();
  trained.fit(points(40).batch(8), {.verbose = kSilent});
  trained.save_checkpoint(path, {{"note", "first"}});

  auto fresh = classifier();
  EXPECT_EQ(fresh.load_checkpoint(path).metadata, (Metadata{{"note", "first"}}));
  EXPECT_EQ(bits(fresh), bits(trained));
}

TEST(Checkpoint, ThoseOfAFolderAreFoundTheLastWrittenFirst) {
  namespace fs = std::filesystem;
  const std::string folder = make_folder();
  const auto now = fs::file_time_type::clock::now();
  int age = 0;
  for (const char* name : {"/b.safetensors", "/c.safetensors", "/a.safetensors", "/log.txt"}) {
    write_safetensors(folder + name, {});
    fs::last_write_time(folder + name, now - std::chrono::seconds(age++));
  }
  fs::create_directory(folder + "/folder.safetensors");
  EXPECT_EQ(find_checkpoints(folder),
            (std::vector<std::string>{folder + "/b.safetensors", folder + "/c.safetensors",
                                      folder + "/a.safetensors"}));
  EXPECT_TRUE(find_checkpoints(folder + "/none").empty());
}

TEST(Checkpoint, TheOneSavedLastIsFoundFirstWhereTheClockHasGoneBack) {
  namespace fs = std::filesystem;
  const std::string folder = make_folder();
  const auto model = classifier();
  for (const std::string& path : {folder + "/z.safetensors", folder + "/a.safetensors",
                                  folder + "/m.safetensors", folder + "/a.safetensors"}) {
    const auto hour_ahead = fs::file_time_type::clock::now() + std::chrono::hours(1);
    model.save_weights(path);
    EXPECT_EQ(find_checkpoints(folder).front(), path);
    if (fs::last_write_time(path) < hour_ahead) fs::last_write_time(path, hour_ahead);
  }
  EXPECT_EQ(find_checkpoints(folder),
            (std::vector<std::string>{folder + "/a.safetensors", folder + "/m.safetensors",
                                      folder + "/z.safetensors"}));
}

TEST(Checkpoint, WeightsAloneHaveKerasNames) {
  const std::string path = make_folder() + "/weights.safetensors";
  auto model = classifier();
  model.save_weights(path);
  const Safetensors file = read_safetensors(path);
  EXPECT_EQ(file.tensors.at("dense/kernel").shape(), (Shape{2, 8}));
  EXPECT_EQ(file.tensors.at("dense_1/bias").shape(), (Shape{2}));
  EXPECT_EQ(file.tensors.size(), 4u);
  model.load_weights(path);
}

TEST(Checkpoint, WhatDoesNotFitIsListedAndChangesNothing) {
  const std::string path = make_folder() + "/other.safetensors";
  write_safetensors(path, {.tensors = {{"dense/kernel", Tensor::zeros(DType::kFloat32, {2, 8})},
                                       {"dense/bias", Tensor::zeros(DType::kFloat32, {9})},
                                       {"extra", Tensor::zeros(DType::kFloat32, {1})},
                                       {"dense_1/bias", Tensor::zeros(DType::kFloat32, {2})}}});
  auto model = classifier();
  const std::string before = bits(model);
  EXPECT_EQ(error_of([&] { model.load_weights(path); }),
            path +
                " does not fit the variables:\n"
                "  dense/bias is float32[8], in the file float32[9]\n"
                "  missing: dense_1/kernel float32[8,2]\n"
                "  unexpected: extra float32[1]");
  EXPECT_EQ(bits(model), before);
}

TEST(Checkpoint, ASaveThatFailsKeepsTheFileOfBeforeAndLeavesNoOther) {
  const std::string folder = make_folder(), path = folder + "/model.safetensors";
  auto model = classifier();
  for (const auto& save : std::vector<std::function<void()>>{
           [&] { model.save_weights(path); }, [&] { model.save_checkpoint(path); }}) {
    save();
    const auto before = contents(folder);
    model.fit(points(8).batch(8), {.verbose = kSilent});
    const auto save_to_a_full_disk = [&] {
      const testing::FileSizeLimit full(256);
      save();
    };
    EXPECT_NE(error_of(save_to_a_full_disk, Code::kResourceExhausted).find(path),
              std::string::npos);
    EXPECT_EQ(contents(folder), before);
    save();
    EXPECT_EQ(contents(folder).size(), 1u);
    EXPECT_NE(contents(folder), before);
  }
}

TEST(Checkpoint, NamesThatAreNoUtf8AreRefusedBeforeTheFileOfBeforeGoes) {
  const std::string folder = make_folder(), path = folder + "/model.safetensors";
  const auto named = [](const std::string& name) {
    auto model = nn::Sequential({nn::Dense(2, {.name = name})});
    model.build({{DType::kFloat32, {1, 2}}});
    cohort::testing::compile(model);
    return model;
  };
  named("caf\xC3\xA9").save_checkpoint(path);
  const auto before = contents(folder);
  const auto latin = named("caf\xE9");
  for (const auto& save : std::vector<std::function<void()>>{[&] { latin.save_weights(path); },
                                                             [&] { latin.save_checkpoint(path); }})
    EXPECT_TRUE(error_of(save).starts_with(R"(the name of the tensor "caf\xe9/)"));
  EXPECT_EQ(error_of([&] {
              named("d").save_checkpoint(path, {{"note", "\xE9"}});
            }),
            R"(the value "\xe9" of the metadata "note" is not UTF-8)");
  EXPECT_EQ(contents(folder), before);
  EXPECT_THROW(Snapshot{latin.variables()}, Error) << "a backup moves the file before it writes";
}

// A classifier whose layers are built for its first batch.
Model unbuilt() {
  set_global_seed(99);
  return nn::Sequential({nn::Dense(8, {.activation = nn::tanh}), nn::Dense(2)});
}

TEST(Checkpoint, MayBeLoadedBeforeThereAreVariables) {
  const std::string path = make_folder() + "/model.safetensors";
  auto trained = classifier();
  trained.fit(points(40).batch(8), {.verbose = kSilent});
  trained.save_checkpoint(path, {{"note", "first"}});
  const auto compile = [](Model& model) { cohort::testing::compile(model, 0.1); };
  const auto load = [&](Model& model) {
    EXPECT_EQ(model.load_checkpoint(path).metadata, (Metadata{{"note", "first"}}));
  };
  const auto build = [](Model& model) { model.build({{DType::kFloat32, {1, 2}}}); };
  const auto evaluate = [](Model& model) { model.evaluate(points(40).batch(8)); };
  using Steps = std::vector<std::function<void(Model&)>>;
  for (const Steps& steps :
       {Steps{load, compile, build}, Steps{load, build, compile}, Steps{compile, load, evaluate}}) {
    Model model = unbuilt();
    for (const auto& step : steps) step(model);
    EXPECT_EQ(bits(model), bits(trained));
  }
}

TEST(Checkpoint, WeightsMayBeLoadedBeforeThereAreVariables) {
  const std::string path = make_folder() + "/weights.safetensors";
  auto trained = classifier();
  trained.save_weights(path);
  const Tensor x = Tensor::full(DType::kFloat32, {3, 2}, 0.5);
  Model model = unbuilt();
  model.load_weights(path);
  EXPECT_NE(
      error_of([&] { function([&](Value v) { return model(v); })({x}); }, Code::kFailedPrecondition)
          .find("call build() first"),
      std::string::npos);
  const Tensor found = model.predict(x), expected = trained.predict(x);
  for (int64_t i = 0; i < found.num_elements(); ++i)
    EXPECT_EQ(found.data<float>()[i], expected.data<float>()[i]);
  Model other = nn::Sequential({nn::Dense(9)});
  EXPECT_NE(error_of([&] { other.load_weights(path + "s"); }, Code::kNotFound).find(path + "s"),
            std::string::npos);
  other.load_weights(path);
  EXPECT_NE(error_of([&] { other.predict(x); }).find("does not fit the variables"),
            std::string::npos);
}

TEST(Checkpoint, ThatWaitsForAnOptimizerIsNotPassedOver) {
  const std::string path = make_folder() + "/model.safetensors", other = path + ".other";
  auto saved = classifier();
  saved.save_checkpoint(path);
  const Tensor x = Tensor::full(DType::kFloat32, {3, 2}, 0.5);
  Model model = unbuilt();
  model.load_checkpoint(path);
  model.build({{DType::kFloat32, {1, 2}}});
  for (const auto& use : std::vector<std::function<void()>>{
           [&] { model.predict(x); }, [&] { function([&](Value v) { return model(v); })({x}); },
           [&] { model.save_weights(other); }}) {
    const std::string message = error_of(use, Code::kFailedPrecondition);
    EXPECT_NE(message.find(path + " with the state of an optimizer: call compile() first"),
              std::string::npos)
        << message;
  }
  EXPECT_FALSE(std::filesystem::exists(other));
  cohort::testing::compile(model);
  EXPECT_EQ(bits(model), bits(saved));
}

TEST(Checkpoint, ThatDoesNotFitIsAnErrorUntilAnotherOneIsLoaded) {
  const std::string folder = make_folder(), wide = folder + "/wide", good = folder + "/good";
  auto saved = classifier();
  saved.save_weights(good);
  cohort::testing::wide_classifier().save_weights(wide);
  Model model = unbuilt();
  cohort::testing::compile(model);
  model.load_weights(wide);
  const auto train = [&] { model.fit(points(8).batch(8), {.verbose = kSilent}); };
  for (int i = 0; i < 2; ++i)
    EXPECT_NE(error_of(train).find("does not fit the variables"), std::string::npos);
  EXPECT_EQ(error_of([&] { model.save_weights(good); }, Code::kFailedPrecondition),
            "the model is to load " + wide + ", which has failed: load it again, or another file");
  model.load_weights(good);
  EXPECT_EQ(bits(model), bits(saved));
  train();
}

TEST(Checkpoint, ThatWaitsIsReplacedByWeightsThatAreLoadedLater) {
  const std::string folder = make_folder(), first = folder + "/first", last = folder + "/last";
  auto trained = classifier();
  trained.fit(points(40).batch(8), {.verbose = kSilent});
  trained.save_checkpoint(first);
  auto saved = classifier();
  saved.save_weights(last);
  Model model = unbuilt();
  model.build({{DType::kFloat32, {1, 2}}});
  model.load_checkpoint(first);
  model.load_weights(last);
  cohort::testing::compile(model);
  EXPECT_EQ(bits(model), bits(saved));
}

// Strategies whose checkpoints must be of one kind: "one", or "mirrored" or "central" over
// replicas.
struct Setting {
  std::string kind;
  int replicas;

  std::unique_ptr<Strategy> make() const {
    std::vector<std::string> devices;
    for (int r = 0; r < replicas; ++r) devices.push_back(str("cpu:", r));
    if (kind == "mirrored")
      return std::make_unique<MirroredStrategy>(MirroredStrategy::Options{.devices = devices});
    if (kind == "central")
      return std::make_unique<CentralStorageStrategy>(
          CentralStorageStrategy::Options{.compute_devices = devices});
    return OneDeviceStrategy();
  }
};
const std::vector<Setting> kSettings = {{"one", 1},      {"mirrored", 1}, {"mirrored", 2},
                                        {"mirrored", 3}, {"central", 2},  {"central", 4}};

// Calls save(path) in each setting, and load(path, from) in each for each of the files.
void move_between_strategies(
    const std::function<void(const std::string& path, const Setting&)>& save,
    const std::function<void(const std::string& path, const Setting& from, const Setting& to)>&
        load) {
  const std::string folder = make_folder();
  const auto path = [&](const Setting& s) { return str(folder, "/", s.kind, s.replicas); };
  set_logical_cpus(4, 1);
  for (const Setting& setting : kSettings) {
    const auto strategy = setting.make();
    const auto scope = strategy->scope();
    save(path(setting), setting);
  }
  for (const Setting& to : kSettings) {
    const auto strategy = to.make();
    const auto scope = strategy->scope();
    for (const Setting& from : kSettings) {
      SCOPED_TRACE(
          str("from ", from.kind, " of ", from.replicas, " to ", to.kind, " of ", to.replicas));
      load(path(from), from, to);
    }
  }
  set_logical_cpus(1);
}

TEST(Checkpoint, ModelsMoveBetweenStrategies) {
  const auto make = [] {
    set_global_seed(3);
    auto model = nn::Sequential({nn::Dense(6), nn::BatchNormalization(), nn::Dense(2)});
    model.build({{DType::kFloat32, {1, 2}}});
    testing::compile(model);
    return model;
  };
  std::map<std::string, std::string> saved;
  move_between_strategies(
      [&](const std::string& path, const Setting&) {
        auto model = make();
        model.fit(points(20).batch(8), {.verbose = kSilent});
        model.save_checkpoint(path);
        saved[path] = bits(model);
      },
      [&](const std::string& path, const Setting&, const Setting& to) {
        auto model = make();
        model.load_checkpoint(path);
        EXPECT_EQ(bits(model), saved[path]);
        for (const auto& variable : model.variables())
          for (int r = 1; r < to.replicas; ++r)
            EXPECT_EQ(to_string(variable->storage(r)), to_string(variable->storage(0)))
                << variable->name();
      });
}

// A scalar variable of each aggregation that there is.
Variables make_scalars(DType dtype, Synchronization synchronization) {
  Variables variables;
  for (const Aggregation aggregation : {Aggregation::kSum, Aggregation::kOnlyFirstReplica,
                                        Aggregation::kMean, Aggregation::kNone}) {
    if (synchronization == Synchronization::kOnRead && aggregation == Aggregation::kNone) continue;
    if (!is_floating(dtype) && aggregation == Aggregation::kMean) continue;
    variables.push_back(
        create_variable({.name = str(dtype, " ", static_cast<int>(aggregation)),
                         .spec = {dtype, {}},
                         .initial_value = [dtype] { return Tensor::zeros(dtype, {}); },
                         .synchronization = synchronization,
                         .aggregation = aggregation}));
  }
  return variables;
}

Variables make_scalars(Synchronization synchronization) {
  Variables variables = make_scalars(DType::kFloat32, synchronization);
  for (auto& v : make_scalars(DType::kInt64, synchronization)) variables.push_back(v);
  return variables;
}

TEST(Checkpoint, VariablesWrittenTogetherMoveAsOneValue) {
  move_between_strategies(
      [&](const std::string& path, const Setting&) {
        const Variables variables = make_scalars(Synchronization::kAuto);
        for (const auto& v : variables) v->assign(Tensor::full(v->spec().dtype, {}, 2.5));
        save_variables(path, variables);
      },
      [&](const std::string& path, const Setting&, const Setting& to) {
        const Variables variables = make_scalars(Synchronization::kOnWrite);
        load_variables(path, variables);
        for (const auto& v : variables)
          for (int r = 0; r < to.replicas; ++r)
            EXPECT_EQ(v->storage(r).item(), is_floating(v->spec().dtype) ? 2.5 : 2) << v->name();
      });
}

TEST(Checkpoint, VariablesMergedOnReadMoveAsTheirMergedValue) {
  const auto own = [](int replica) { return 4 + 3 * replica; };
  const auto merged = [&](const Variable& v, int replicas) {
    if (v.aggregation() == Aggregation::kOnlyFirstReplica) return 1.0 * own(0);
    double sum = 0;
    for (int r = 0; r < replicas; ++r) sum += own(r);
    return v.aggregation() == Aggregation::kSum ? sum : sum / replicas;
  };
  move_between_strategies(
      [&](const std::string& path, const Setting& from) {
        const Variables variables = make_scalars(Synchronization::kOnRead);
        for (const auto& v : variables)
          for (int r = 0; r < from.replicas; ++r)
            v->storage(r).assign(Tensor::full(v->spec().dtype, {}, own(r)));
        save_variables(path, variables);
      },
      [&](const std::string& path, const Setting& from, const Setting& to) {
        const Variables variables = make_scalars(Synchronization::kOnRead);
        load_variables(path, variables);
        for (const auto& v : variables) {
          const auto expected = static_cast<float>(merged(*v, from.replicas));
          EXPECT_FLOAT_EQ(static_cast<float>(v->value().item()), expected) << v->name();
          double sum = 0;
          for (int r = 0; r < to.replicas; ++r) sum += v->storage(r).item();
          if (v->aggregation() != Aggregation::kSum) sum /= to.replicas;
          EXPECT_FLOAT_EQ(static_cast<float>(sum), expected) << v->name();
        }
        // Variables of the other kind take the values too.
        const Variables plain = make_scalars(Synchronization::kAuto);
        load_variables(path, plain, {.ignore_missing = true});
        for (const auto& v : plain) {
          if (v->aggregation() == Aggregation::kNone) continue;
          EXPECT_EQ(v->value().item(),
                    Tensor::full(v->spec().dtype, {}, merged(*v, from.replicas)).item());
        }
      });
}

TEST(Checkpoint, AVariableWithoutAValueOutsideReplicasCannotBeSaved) {
  set_logical_cpus(2);
  MirroredStrategy strategy;
  const auto scope = strategy.scope();
  const auto v = create_variable({.name = "v",
                                  .initial_value = [] { return Tensor::scalar(1.0f); },
                                  .synchronization = Synchronization::kOnRead});
  const std::string path = make_folder() + "/v.safetensors";
  EXPECT_NE(error_of([&] { save_variables(path, {v}); }).find("\"v\" is synchronised on read"),
            std::string::npos);
  EXPECT_FALSE(std::filesystem::exists(path));
  set_logical_cpus(1);
}

// So that what was looked at is what is written, also where others change the variables meanwhile.
TEST(Checkpoint, ASnapshotHoldsWhatVariablesWereWhenItWasMade) {
  const std::string path = make_folder() + "/v.safetensors";
  const auto v =
      create_variable({.name = "v", .initial_value = [] { return Tensor::scalar(1.0f); }});
  const auto w =
      create_variable({.name = "w", .initial_value = [] { return Tensor::scalar(2.0f); }});
  const Snapshot snapshot({v}, {{"note", "first"}});
  v->assign(Tensor::scalar(9.0f));
  ASSERT_NE(snapshot.find(*v), nullptr);
  EXPECT_EQ(snapshot.find(*v)->item(), 1);
  EXPECT_EQ(snapshot.find(*w), nullptr);
  snapshot.save(path);
  EXPECT_EQ(load_variables(path, {v}).metadata, (Metadata{{"note", "first"}}));
  EXPECT_EQ(v->value().item(), 1);
}

TEST(Checkpoint, NamesThatWouldBeTakenForOthersAreRefused) {
  const auto make = [](const std::string& name) {
    return create_variable({.name = name, .initial_value = [] { return Tensor::scalar(1.0f); }});
  };
  const std::string path = make_folder() + "/v.safetensors";
  EXPECT_EQ(error_of([&] { save_variables(path, {make("extra:v")}); }),
            "cannot save the variable \"extra:v\": names that begin with \"extra:\" are those of "
            "tensors that are no variable's");
  EXPECT_EQ(error_of([&] {
              save_variables(path, {make("v"), make("v")});
            }),
            "cannot save the variables: two are named \"v\"; give one of the layers, networks or "
            "optimizers that they are of another `name`");
  EXPECT_FALSE(std::filesystem::exists(path));
  save_variables(path, {make("v")});
  const Variables twins = {make("v"), make("v")};
  twins[0]->assign(Tensor::scalar(2.0f));
  EXPECT_EQ(error_of([&] {
              load_variables(path, twins, {.ignore_missing = true});
            }).find("cannot load the variables: two are named \"v\""),
            0u);
  EXPECT_EQ(twins[0]->value().item(), 2);
}

// Before any variable changes.
TEST(Checkpoint, ACheckCanRejectAFile) {
  const std::string path = make_folder() + "/v.safetensors";
  const auto v =
      create_variable({.name = "v", .initial_value = [] { return Tensor::scalar(1.0f); }});
  Snapshot({v}, {{"note", "first"}}, default_strategy().workers(), {{"t", Tensor::scalar(5.0f)}})
      .save(path);
  v->assign(Tensor::scalar(2.0f));
  const auto reject = [](const Safetensors& rest) {
    invalid(rest.metadata.at("note"), " ", rest.tensors.at("t").item());
  };
  EXPECT_EQ(error_of([&] { load_variables(path, {v}, {.check = reject}); }), "first 5");
  EXPECT_EQ(v->value().item(), 2);
}

// A network with dropout, in which the step number matters too.
Model with_dropout() {
  set_global_seed(3);
  auto model =
      nn::Sequential({nn::Dense(8, {.activation = nn::relu}), nn::Dropout(0.3), nn::Dense(2)});
  testing::compile(model);
  return model;
}

class Break : public std::exception {};

TEST(BackupAndRestore, ContinuesWithTheSameBitsAfterABreakAnywhere) {
  const auto train = points(50).shuffle(20, {.seed = 9}).batch(8);
  for (const bool endless : {false, true}) {
    for (const int64_t break_at : {2, 7, 13}) {
      SCOPED_TRACE(::testing::Message()
                   << "break after step " << break_at << ", endless " << endless);
      const std::string folder = make_folder();
      const auto fit = [&](Model model, const CallbackPtr& extra) {
        FitOptions options{.epochs = 3, .verbose = kSilent};
        if (endless) options.steps_per_epoch = 5;
        options.callbacks = {callbacks::BackupAndRestore(folder, {.save_freq = 2}), extra};
        return std::pair(model.fit(endless ? train.repeat() : train, options), bits(model));
      };
      const auto nothing = std::make_shared<Hooks>();
      const auto [expected, expected_bits] = fit(with_dropout(), nothing);

      auto breaks = std::make_shared<Hooks>();
      breaks->batch_end = [&](Training& training) {
        if (training.total_steps() == break_at) throw Break();
      };
      EXPECT_THROW(fit(with_dropout(), breaks), Break);

      const auto [rest, rest_bits] = fit(with_dropout(), nothing);
      EXPECT_EQ(rest_bits, expected_bits);
      EXPECT_EQ(rest["loss"].back(), expected["loss"].back());
      EXPECT_EQ(rest["accuracy"].back(), expected["accuracy"].back());
    }
  }
}

TEST(BackupAndRestore, DeletesTheBackupWhenDone) {
  const std::string folder = make_folder();
  with_dropout().fit(points(20).batch(10),
                     {.callbacks = {callbacks::BackupAndRestore(folder)}, .verbose = kSilent});
  EXPECT_TRUE(std::filesystem::is_empty(folder));
}

TEST(BackupAndRestore, RejectsACheckpointThatIsNoBackup) {
  const std::string folder = make_folder();
  classifier().save_checkpoint(folder + "/backup.safetensors");
  EXPECT_NE(error_of(
                [&] {
                  classifier().fit(
                      points(20).batch(10),
                      {.callbacks = {callbacks::BackupAndRestore(folder)}, .verbose = kSilent});
                },
                Code::kDataLoss)
                .find("not a backup"),
            std::string::npos);
}

}  // namespace
}  // namespace cohort
