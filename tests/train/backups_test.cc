#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <future>
#include <map>
#include <optional>
#include <regex>
#include <string>
#include <string_view>
#include <sys/stat.h>
#include <thread>
#include <utility>
#include <vector>

#include "core/base/file.h"
#include "core/base/notice.h"
#include "tests/testing/file_size_limit.h"
#include "tests/train/testing.h"

namespace cohort {
namespace {

using cohort::testing::classifier;
using cohort::testing::die_after;
using cohort::testing::error_of;
using cohort::testing::FileSizeLimit;
using cohort::testing::fit;
using cohort::testing::Hooks;
using cohort::testing::make_folder;
using cohort::testing::points;
using cohort::testing::script;

// Trains in epochs of five steps, with callbacks that depend on the epochs before. The backup is
// the first one in the list, and nevertheless saves what those behind it have done.
class Restarts : public ::testing::Test {
 protected:
  struct Outcome {
    std::string weights, best;
    std::vector<std::string> kept;
    int64_t last_epoch;
    double rate;
    std::string stop_reason;
    bool operator==(const Outcome&) const = default;
  };

  static Outcome train(const std::string& folder, std::optional<int64_t> save_freq,
                       int64_t die = -1) {
    auto model = classifier();
    const History history = model.fit(
        points(40).shuffle(40, {.seed = 4}).batch(8),
        {.epochs = 9,
         .callbacks = {callbacks::BackupAndRestore(folder + "/backup", {.save_freq = save_freq}),
                       script("val_loss", {5, 1, 3, 3, 3, 3, 3, 3, 3}),
                       callbacks::ModelCheckpoint(folder + "/best", {.save_best_only = true}),
                       callbacks::ModelCheckpoint(folder + "/all/{epoch}-{batch}",
                                                  {.save_freq = 3, .keep = 2}),
                       callbacks::EarlyStopping({.patience = 6, .restore_best_weights = true}),
                       callbacks::ReduceLROnPlateau({.factor = 0.5, .patience = 2, .cooldown = 2}),
                       die_after(die)},
         .verbose = Verbose::kSilent});
    std::vector<std::string> kept;
    for (const auto& entry : std::filesystem::directory_iterator(folder + "/all"))
      kept.push_back(entry.path().filename());
    std::ranges::sort(kept);
    return {cohort::testing::bits(model), read_file(folder + "/best"),       kept,
            history.epochs.back(),        model.optimizer().learning_rate(), history.stop_reason};
  }
};

TEST_F(Restarts, GoOnWithWhatCallbacksKeep) {
  const std::string folder = make_folder();
  const Outcome expected = train(folder + "/whole", std::nullopt);
  EXPECT_EQ(expected.last_epoch, 7);
  EXPECT_EQ(expected.rate, 0.025) << "reduced twice";
  for (const std::optional<int64_t> save_freq :
       {std::optional<int64_t>(), std::optional<int64_t>(2)})
    for (int64_t die = 7; die < 40; die += 6) {
      SCOPED_TRACE(str("after step ", die, ", saving after ", save_freq.value_or(5)));
      const std::string own = str(folder, "/", save_freq.value_or(5), "-", die);
      EXPECT_THROW(train(own, save_freq, die), Error);
      const Outcome found = train(own, save_freq);
      EXPECT_EQ(found.kept, expected.kept);
      EXPECT_EQ(found.stop_reason, expected.stop_reason);
      EXPECT_EQ(found.rate, expected.rate);
      EXPECT_TRUE(found == expected);
    }
}

TEST_F(Restarts, FindTheStateOfACallbackInAnotherList) {
  const std::string folder = make_folder();
  const auto run = [&](std::vector<CallbackPtr> callbacks, int64_t die) {
    callbacks.push_back(callbacks::BackupAndRestore(folder));
    callbacks.push_back(die_after(die));
    callbacks.push_back(script("val_loss", {1, 2, 3, 4, 5, 6}));
    callbacks.push_back(callbacks::EarlyStopping({.patience = 3}));
    return fit(classifier(), 6, std::move(callbacks)).epochs.back();
  };
  const auto other = [] { return callbacks::EarlyStopping({.monitor = "loss", .patience = 9}); };
  EXPECT_THROW(run({other()}, 3), Error);
  EXPECT_EQ(run({callbacks::TerminateOnNaN(), callbacks::TensorBoard(folder + "/events")}, -1), 3);
}

TEST_F(Restarts, DoNotSetTheRateOfAnEpochTwice) {
  const std::string folder = make_folder();
  const auto run = [&](const std::string& name, int64_t die) {
    auto model = classifier();
    const auto halve = [](int64_t, double rate) { return rate / 2; };
    model.fit(points(40).batch(8),
              {.epochs = 3,
               .callbacks = {callbacks::BackupAndRestore(folder + name, {.save_freq = 1}),
                             callbacks::LearningRateScheduler(halve), die_after(die)},
               .verbose = Verbose::kSilent});
    return std::pair(model.optimizer().learning_rate(), cohort::testing::bits(model));
  };
  const auto expected = run("/whole", -1);
  EXPECT_EQ(expected.first, 0.1 / 8);
  EXPECT_THROW(run("/broken", 8), Error);
  EXPECT_EQ(run("/broken", -1), expected);
}

// The same weights under other names in another order: those of a network of two branches, which
// are drawn one after the other.
Model two_branches(bool left_first) {
  set_global_seed(3);
  const auto branch = [](const std::string& name) { return nn::Dense(2, {.name = name}); };
  const auto x = nn::Input({2});
  const auto left = branch("left"), right = branch("right");
  auto model = nn::Functional(
      {x}, left_first ? nn::Add()({left(x), right(x)}) : nn::Add()({right(x), left(x)}));
  for (const auto& variable : model.variables())
    variable->assign(Tensor::full(DType::kFloat32, variable->spec().shape,
                                  variable->name().starts_with("left") ? 0.25 : -0.5));
  cohort::testing::compile(model);
  return model;
}

TEST_F(Restarts, FindTheBestWeightsByTheirNames) {
  const std::string folder = make_folder();
  std::map<std::string, std::string> best;
  const auto run = [&](bool left_first, int64_t die) {
    auto hooks = std::make_shared<Hooks>();
    hooks->epoch_end = [&](Training& training, Logs&) {
      if (training.epoch() != 0) return;
      for (const auto& v : training.model().variables()) best[v->name()] = to_string(v->value());
    };
    auto model = two_branches(left_first);
    fit(model, 4,
        {script("val_loss", {1, 2, 3, 4}), hooks, die_after(die),
         callbacks::EarlyStopping({.patience = 2, .restore_best_weights = true}),
         callbacks::BackupAndRestore(folder)});
    return model;
  };
  EXPECT_THROW(run(true, 2), Error);
  const auto model = run(false, -1);
  ASSERT_EQ(best.size(), 4u);
  EXPECT_NE(best["left/bias"], best["right/bias"]);
  EXPECT_EQ(model.variables()[0]->name(), "right/kernel") << "in another order";
  for (const auto& v : model.variables()) EXPECT_EQ(to_string(v->value()), best[v->name()]);
}

TEST_F(Restarts, DoNotPutBackTheBestWeightsOfABackupUnlessAskedTo) {
  const std::string folder = make_folder();
  const auto run = [&](const std::string& name, bool restore_best_weights, int64_t die) {
    auto model = classifier();
    fit(model, 3,
        {script("val_loss", {1, 2, 3}), die_after(die),
         callbacks::EarlyStopping({.patience = 5, .restore_best_weights = restore_best_weights}),
         callbacks::BackupAndRestore(folder + name)});
    return cohort::testing::bits(model);
  };
  const std::string expected = run("/whole", false, -1);
  EXPECT_THROW(run("/broken", true, 2), Error);
  EXPECT_EQ(run("/broken", false, -1), expected);
}

// What callbacks keep, changed in the file.
TEST(States, OfWrongTypesAreNamedWithTheirFile) {
  const std::string folder = make_folder(), file = folder + "/backup.safetensors";
  const auto run = [&](int64_t die) {
    fit(classifier(), 3,
        {script("val_loss", {1, 2, 3}), die_after(die),
         callbacks::EarlyStopping({.patience = 2, .restore_best_weights = true}),
         callbacks::BackupAndRestore(folder)});
  };
  EXPECT_THROW(run(2), Error);
  const Safetensors good = read_safetensors(file);
  const std::string owner = "callback EarlyStopping of val_loss #1";
  const auto said_of = [&](const std::string& name, const Tensor& value) {
    Safetensors changed = good;
    changed.tensors.at("extra:" + owner + ": " + name) = value;
    write_safetensors(file, changed);
    return error_of([&] { run(-1); });
  };
  EXPECT_EQ(said_of("waited", Tensor::scalar(std::nan(""))),
            file + ": " + owner + ": \"waited\" is float64[], expected int64[]");
  EXPECT_EQ(said_of("waited", Tensor::zeros(DType::kInt64, {2})),
            file + ": " + owner + ": \"waited\" is int64[2], expected int64[]");
  EXPECT_EQ(said_of("best_weights/dense/bias", Tensor::zeros(DType::kFloat32, {9})),
            file + ": " + owner + ": dense/bias is float32[8], among the best weights float32[9]");
  EXPECT_EQ(said_of("best", Tensor::scalar(int64_t{1})),
            file + ": " + owner + ": \"best\" is int64[], expected float64[]");
}

// A backup from the middle of an epoch, and what it cannot be continued with.
class MisfitBackups : public ::testing::Test {
 protected:
  static Model compiled(std::vector<metrics::Metric> metrics,
                        std::vector<metrics::Metric> weighted_metrics = {}) {
    auto model = classifier();
    model.compile({.optimizer = optim::SGD(0.1),
                   .loss = losses::SparseCategoricalCrossentropy({.from_logits = true}),
                   .metrics = std::move(metrics),
                   .weighted_metrics = std::move(weighted_metrics)});
    return model;
  }
  void train(Model model, const data::Dataset& dataset, const CallbackPtr& callback,
             std::optional<int64_t> steps_per_epoch = std::nullopt) {
    model.fit(dataset,
              {.steps_per_epoch = steps_per_epoch,
               .callbacks = {callbacks::BackupAndRestore(folder_, {.save_freq = 1}), callback},
               .verbose = Verbose::kSilent});
  }
  void train(const data::Dataset& dataset, std::vector<metrics::Metric> metrics, int64_t die = -1) {
    train(compiled(std::move(metrics)), dataset, die_after(die));
  }
  // A metric of so many sums.
  static metrics::Metric sums(const std::string& name, size_t count) {
    return {name,
            [count](const Value&, const Value& predicted, const Value&) {
              return std::vector<Value>(count, ops::reduce_sum(predicted));
            },
            [](const metrics::State& state) { return state[0]; }};
  }
  std::string continued(const data::Dataset& dataset, std::vector<metrics::Metric> metrics) {
    return error_of([&] { train(dataset, std::move(metrics)); }, Code::kFailedPrecondition);
  }

  const std::string folder_ = make_folder(), file_ = folder_ + "/backup.safetensors";
  const data::Dataset data_ = points(40).shuffle(40, {.seed = 4}).batch(8);
};

TEST_F(MisfitBackups, AreOfOtherMetrics) {
  EXPECT_THROW(train(data_, {sums("a", 1), sums("b", 1)}, 3), Error);
  for (const auto& [metrics, names] : {std::pair(std::vector{sums("b", 1), sums("a", 1)}, "b, a"),
                                       std::pair(std::vector{sums("a", 1)}, "a"),
                                       std::pair(std::vector<metrics::Metric>(), "none")})
    EXPECT_TRUE(continued(data_, metrics)
                    .starts_with(str(file_,
                                     ": the position is in the middle of an epoch with the metrics "
                                     "a, b, and the model is compiled with ",
                                     names, ";")))
        << continued(data_, metrics);
  EXPECT_NE(continued(data_, {sums("a", 1), sums("b", 2)})
                .find("metric b: a metric has 1 sums so far, and a batch adds to 2"),
            std::string::npos);
  EXPECT_NE(error_of([&] { train(compiled({sums("a", 1)}, {sums("b", 1)}), data_, die_after(-1)); },
                     Code::kFailedPrecondition)
                .find("with the metrics a, b, and the model is compiled with a, b (weighted);"),
            std::string::npos);
}

// There is no further batch whose sums would be compared with those.
TEST_F(MisfitBackups, AreOfAnotherMetricAtTheLastStep) {
  auto dies = std::make_shared<Hooks>();
  dies->epoch_end = [](Training&, Logs&) { fail(Code::kAborted, "the power is gone"); };
  EXPECT_THROW(train(compiled({sums("a", 1)}), data_, dies), Error);
  const std::string message = continued(data_, {metrics::MeanSquaredError("a")});
  EXPECT_NE(message.find("metric a: a metric has 1 sums so far, and a batch adds to 2"),
            std::string::npos)
      << message;
}

TEST_F(MisfitBackups, AreOfMoreSteps) {
  EXPECT_THROW(train(compiled({}), data_, die_after(4), 5), Error);
  const auto continued_for = [&](int64_t steps) {
    train(compiled({}), data_, die_after(-1), steps);
  };
  const std::string message = error_of([&] { continued_for(2); }, Code::kFailedPrecondition);
  EXPECT_TRUE(message.starts_with(
      str(file_, ": the position is after step 3 of an epoch, and steps_per_epoch is 2;")))
      << message;
  continued_for(3);
}

TEST_F(MisfitBackups, AreOfAnotherVersion) {
  EXPECT_THROW(train(data_, {}, 3), Error);
  Safetensors backup = read_safetensors(file_);
  std::string& position = backup.metadata.at("training");
  position = std::regex_replace(position, std::regex(R"(,"version":\d+)"), "");
  write_safetensors(file_, backup);
  const std::string message = continued(data_, {});
  EXPECT_TRUE(message.starts_with(
      file_ + ": the position in the middle of an epoch is of version 1, and this program"))
      << message;
}

TEST_F(MisfitBackups, HaveNumbersThatNoTrainingHas) {
  EXPECT_THROW(train(data_, {}, 3), Error);
  std::filesystem::remove(file_ + ".previous");
  const Safetensors whole = read_safetensors(file_);
  for (const char* step : {"-1", "1e300", "0.5", "9007199254740993", "18446744073709551615"}) {
    Safetensors backup = whole;
    std::string& position = backup.metadata.at("training");
    position = std::regex_replace(position, std::regex(R"("step":\d+)"), str("\"step\":", step));
    write_safetensors(file_, backup);
    const std::string message = error_of([&] { train(data_, {}); }, Code::kDataLoss);
    EXPECT_NE(message.find("the position of training is corrupt: \"step\" is "), std::string::npos)
        << step << ": " << message;
  }
}

TEST_F(MisfitBackups, LeaveTheModelAsItIs) {
  EXPECT_THROW(train(data_, {sums("a", 1)}, 3), Error);
  const auto model = compiled({});
  const auto kernel = [&] { return to_string(model.variables()[0]->value()); };
  const std::string before = kernel();
  EXPECT_THROW(train(model, data_, die_after(-1)), Error);
  EXPECT_EQ(kernel(), before);
}

TEST_F(MisfitBackups, AreOfAnotherPipelineAndNamed) {
  EXPECT_THROW(train(data_, {}, 3), Error);
  const std::string message = continued(points(40).batch(8), {});
  EXPECT_NE(message.find(file_ + ": "), std::string::npos) << message;
  EXPECT_NE(message.find("another pipeline"), std::string::npos) << message;
}

// Rates and remaining time follow from it, and from all steps of the epoch.
TEST(Backups, HoldTheTimeThatTheEpochHasTaken) {
  const std::string folder = make_folder(), file = folder + "/backup.safetensors";
  const auto fit = [&](const CallbackPtr& callback) {
    classifier().fit(
        points(40).batch(8),
        {.epochs = 2,
         .callbacks = {callback, callbacks::BackupAndRestore(folder, {.save_freq = 1})},
         .verbose = Verbose::kSilent});
  };
  EXPECT_THROW(fit(die_after(3)), Error);
  Safetensors backup = read_safetensors(file);
  std::string& position = backup.metadata.at("training");
  position = std::regex_replace(position, std::regex(R"("seconds":[^,}]*)"), R"("seconds":1e9)");
  write_safetensors(file, backup);
  std::vector<bool> is_long;
  auto hooks = std::make_shared<Hooks>();
  hooks->batch_begin = [&](Training& training) { is_long.push_back(training.seconds() >= 1e9); };
  fit(hooks);
  EXPECT_EQ(is_long, (std::vector<bool>{true, true, true, false, false, false, false, false}));
}

TEST(Backups, AreMadeAfterSoLongATime) {
  for (const bool is_long : {false, true}) {
    const std::string folder = make_folder();
    std::vector<bool> was_saved;  // before each step
    auto hooks = std::make_shared<Hooks>();
    hooks->batch_begin = [&](Training&) {
      was_saved.push_back(std::filesystem::exists(folder + "/backup.safetensors"));
    };
    const auto interval = is_long ? std::chrono::hours(1) : std::chrono::nanoseconds(1);
    classifier().fit(
        points(12).batch(4),
        {.epochs = 2,
         .callbacks = {hooks, callbacks::BackupAndRestore(folder, {.save_interval = interval})},
         .verbose = Verbose::kSilent});
    EXPECT_EQ(was_saved, std::vector<bool>({false, !is_long, !is_long, true, true, true}));
  }
}

TEST(Backups, BetweenEpochsOfSoManyStepsGoOnWithEpochsThatArePasses) {
  const std::string folder = make_folder();
  const auto train = [&](std::optional<int64_t> steps_per_epoch, int64_t die) {
    auto model = classifier();
    model.fit(points(40).shuffle(40, {.seed = 4}).batch(8),
              {.epochs = 3,
               .steps_per_epoch = steps_per_epoch,
               .callbacks = {callbacks::BackupAndRestore(folder), die_after(die)},
               .verbose = Verbose::kSilent});
    return cohort::testing::bits(model);
  };
  const std::string expected = train(std::nullopt, -1);
  EXPECT_THROW(train(5, 7), Error);
  EXPECT_EQ(train(std::nullopt, -1), expected);
}

// It is built for the first batch of all, wherever it goes on.
TEST(Backups, AreContinuedByAModelThatIsNotBuilt) {
  const std::string folder = make_folder();
  const auto train = [&](std::optional<int64_t> steps_per_epoch, int64_t die) {
    set_global_seed(3);
    auto model = nn::Sequential({nn::Dense(2)});
    cohort::testing::compile(model);
    model.fit(points(40).shuffle(40, {.seed = 4}).batch(8),
              {.epochs = 3,
               .steps_per_epoch = steps_per_epoch,
               .callbacks = {callbacks::BackupAndRestore(folder, {.save_freq = 1}), die_after(die)},
               .verbose = Verbose::kSilent});
    return cohort::testing::bits(model);
  };
  for (const auto steps_per_epoch : {std::optional<int64_t>(), std::optional<int64_t>(4)}) {
    const std::string expected = train(steps_per_epoch, -1);
    for (const int64_t die : {3, 5, 7}) {
      EXPECT_THROW(train(steps_per_epoch, die), Error);
      EXPECT_EQ(train(steps_per_epoch, -1), expected) << "after step " << die;
    }
  }
}

TEST(Backups, GoOnWithTheRandomNumbersOfValidation) {
  const std::string folder = make_folder();
  const auto run = [&](const std::string& name, int64_t die) {
    set_global_seed(3);
    const auto x = nn::Input({2});
    const auto hidden = nn::Dropout(0.5)(nn::Dense(16)(x), {.training = true});
    auto model = nn::Functional({x}, nn::Dense(2)(hidden));
    cohort::testing::compile(model);
    const History history =
        model.fit(points(16).batch(8),
                  {.epochs = 4,
                   .validation_data = points(16).batch(8),
                   .callbacks = {callbacks::BackupAndRestore(folder + name), die_after(die)},
                   .verbose = Verbose::kSilent});
    return history["val_loss"].back();
  };
  const double expected = run("/whole", -1);
  EXPECT_THROW(run("/broken", 5), Error);
  EXPECT_EQ(run("/broken", -1), expected) << "seed 3";
}

// As after a slip in the number of epochs.
TEST(Backups, StayWhereFewerEpochsAreAskedFor) {
  const std::string folder = make_folder(), file = folder + "/backup.safetensors";
  const auto train = [&](int64_t epochs, int64_t die) {
    auto model = classifier();
    model.fit(points(40).batch(8),
              {.epochs = epochs,
               .callbacks = {callbacks::BackupAndRestore(folder, {.save_freq = 1}), die_after(die)},
               .verbose = Verbose::kSilent});
    return cohort::testing::bits(model);
  };
  const std::string expected = train(4, -1);
  for (const int64_t asked : {1, 2}) {
    EXPECT_THROW(train(4, 12), Error);  // in the third epoch
    const std::string backup = read_file(file);
    ::testing::internal::CaptureStderr();
    train(asked, -1);
    EXPECT_NE(::testing::internal::GetCapturedStderr().find(
                  str(" is of epoch 3, beyond the last one asked for, ", asked)),
              std::string::npos);
    EXPECT_EQ(read_file(file), backup);
    EXPECT_EQ(train(4, -1), expected);
    EXPECT_FALSE(std::filesystem::exists(file));
  }
}

TEST(Backups, AreOfOneJobAtATime) {
  const std::string folder = make_folder();
  auto whole = classifier(), second = classifier();
  fit(whole, 3, {});
  std::optional<int64_t> begun_with;
  auto begins = std::make_shared<Hooks>();
  begins->epoch_begin = [&](Training& training) {
    if (!begun_with) begun_with = training.epoch();
  };
  std::promise<void> waits;
  set_notice_sink([&, is_told = false](std::string_view lines) mutable {
    const bool is_it = lines.find("another job keeps its backups in " + folder) != lines.npos;
    if (is_it && !std::exchange(is_told, true)) waits.set_value();
  });
  std::thread thread;
  auto starts_another = std::make_shared<Hooks>();
  starts_another->epoch_begin = [&](Training& training) {
    if (training.epoch() != 1) return;
    thread = std::thread([&] { fit(second, 3, {begins, callbacks::BackupAndRestore(folder)}); });
    EXPECT_EQ(waits.get_future().wait_for(std::chrono::seconds(60)), std::future_status::ready);
  };
  fit(classifier(), 3, {starts_another, callbacks::BackupAndRestore(folder)});
  thread.join();
  set_notice_sink({});
  EXPECT_EQ(begun_with, 0) << "and not after an epoch of the other";
  EXPECT_EQ(cohort::testing::bits(second), cohort::testing::bits(whole));
  EXPECT_TRUE(std::filesystem::is_empty(folder));
}

// Where a fit that is stopped in its third epoch is continued: the bits of the final weights.
class DamagedBackups : public ::testing::Test {
 protected:
  std::string continued(int64_t stop_at = -1) { return continued(die_after(stop_at)); }
  std::string continued(const CallbackPtr& callback) {
    auto model = classifier();
    model.fit(points(40).shuffle(40, {.seed = 4}).batch(8),
              {.epochs = 4,
               .callbacks = {callbacks::BackupAndRestore(folder_), callback},
               .verbose = Verbose::kSilent});
    return cohort::testing::bits(model);
  }
  static void damage(const std::string& path) {
    std::string bytes = read_file(path);
    bytes[bytes.size() - 5] ^= 1;
    write_file_atomically(path, bytes);
  }

  const std::string folder_ = make_folder();
  const std::string newest_ = folder_ + "/backup.safetensors", previous_ = newest_ + ".previous";
};

TEST_F(DamagedBackups, GiveWayToTheOneBefore) {
  const std::string expected = continued();
  EXPECT_TRUE(std::filesystem::is_empty(folder_)) << "both are removed in the end";
  EXPECT_THROW(continued(13), Error);
  damage(newest_);
  ::testing::internal::CaptureStderr();
  EXPECT_THROW(continued(8), Error);  // from the end of the first epoch, in which there are 5
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("goes on from the one before, " + previous_ + ": " + newest_),
            std::string::npos)
      << said;
  EXPECT_NE(said.find("damaged"), std::string::npos) << said;
  EXPECT_FALSE(std::filesystem::exists(previous_)) << "it is the newest now";
  EXPECT_EQ(continued(), expected);
}

TEST_F(DamagedBackups, WhoseHeaderIsDamagedGiveWayToTheOneBefore) {
  const std::string expected = continued();
  for (const char* const damaged : {"\"F72\"", "\"U32\"", "1e999"}) {
    EXPECT_THROW(continued(13), Error);
    const std::string dtype = "\"F32\"";
    std::string bytes = read_file(newest_);
    bytes.replace(bytes.find(dtype), dtype.size(), damaged);
    write_file_atomically(newest_, bytes);
    EXPECT_EQ(continued(), expected) << damaged;
  }
}

// A socket stands for a file on a disk at fault: the system has an error for it that has no code.
TEST_F(DamagedBackups, ThatTheSystemCannotReadGiveWayToTheOneBefore) {
  const std::string expected = continued();
  EXPECT_THROW(continued(13), Error);
  std::filesystem::remove(newest_);
  ASSERT_EQ(::mknod(newest_.c_str(), S_IFSOCK | 0600, 0), 0);
  EXPECT_EQ(continued(), expected);
}

TEST_F(DamagedBackups, AreAnErrorWhenThereIsNoOther) {
  EXPECT_THROW(continued(13), Error);
  damage(newest_);
  damage(previous_);
  EXPECT_NE(error_of([&] { continued(); }, Code::kDataLoss).find(previous_), std::string::npos);
  std::filesystem::remove(previous_);
  EXPECT_NE(error_of([&] { continued(); }, Code::kDataLoss).find(newest_), std::string::npos);
}

TEST_F(DamagedBackups, AreNotTakenForNoneWhereTheSystemCannotLookForThem) {
  EXPECT_THROW(continued(13), Error);
  std::filesystem::remove(newest_);
  std::filesystem::create_symlink(newest_, newest_);  // leads nowhere
  const std::string message = error_of([&] { continued(); });
  EXPECT_TRUE(message.starts_with("BackupAndRestore: cannot look for " + newest_)) << message;
}

// As when a process was killed while the names changed.
TEST_F(DamagedBackups, AndThoseThatAreNotThereGiveWayToTheOneBefore) {
  const std::string expected = continued();
  EXPECT_THROW(continued(13), Error);
  std::filesystem::remove(newest_);
  EXPECT_EQ(continued(), expected);
}

TEST_F(DamagedBackups, AreNoneWhereTheDiskHasNoRoomForTheNext) {
  const std::string expected = continued();
  std::optional<FileSizeLimit> full;
  std::map<std::string, std::string> before;
  auto hooks = std::make_shared<Hooks>();
  hooks->batch_end = [&](Training& training) {
    if (training.total_steps() == 12) {
      before = cohort::testing::contents(folder_);
      before.erase("backup.lock");  // which is there while training goes on
      full.emplace(256);
    }
    if (training.total_steps() == 18) fail(Code::kAborted, "the power is gone");
  };
  EXPECT_THROW(continued(hooks), Error);
  full.reset();
  EXPECT_EQ(before.size(), 2u);
  EXPECT_EQ(cohort::testing::contents(folder_), before) << "both, and no part of the new one";
  EXPECT_EQ(continued(), expected);
}

}  // namespace
}  // namespace cohort
