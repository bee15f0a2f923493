#include "core/train/evaluate_checkpoints.h"

#include <chrono>
#include <filesystem>
#include <future>
#include <limits>
#include <string>
#include <string_view>
#include <sys/inotify.h>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

#include "core/base/file.h"
#include "core/base/notice.h"
#include "core/train/safetensors.h"
#include "tests/train/testing.h"

namespace cohort::testing {
namespace {

constexpr auto kLong = std::chrono::seconds(60);

TEST(EvaluateCheckpoints, EvaluatesEachThatAppearsOldestFirst) {
  const std::string folder = make_folder();
  std::vector<double> expected;
  std::vector<int64_t> steps;
  std::thread training([&] {
    Model model = classifier();
    auto hooks = std::make_shared<Hooks>();
    hooks->epoch_end = [&](Training& t, Logs&) {
      expected.push_back(t.model().evaluate(points(40).batch(40)).at("loss"));
      steps.push_back(t.total_steps());
      t.model().save_checkpoint(str(folder, "/epoch-", t.epoch(), ".safetensors"));
    };
    model.fit(points(64).batch(16),
              {.epochs = 4, .callbacks = {hooks}, .verbose = Verbose::kSilent});
  });
  Model model = classifier();
  int told = 0;
  const History history = evaluate_checkpoints(
      folder, model, points(40).batch(40),
      {.poll = std::chrono::milliseconds(2),
       .max_evaluations = 4,
       .idle_timeout = kLong,
       .evaluated = [&](const std::string&, int64_t, const Logs&) { ++told; }});
  training.join();
  EXPECT_EQ(told, 4);
  EXPECT_EQ(history.epochs, steps);
  EXPECT_EQ(history["loss"], expected);
}

TEST(EvaluateCheckpoints, LooksAtWeightsAloneAndAtAFileThatIsWrittenAgain) {
  const std::string folder = make_folder(), path = folder + "/weights.safetensors";
  const auto data = points(40).batch(40);
  Model model = classifier(), other = classifier();
  other.fit(data, {.epochs = 1, .verbose = Verbose::kSilent});
  model.save_weights(path);
  const History history = evaluate_checkpoints(
      folder, model, data,
      {.poll = std::chrono::milliseconds(2),
       .max_evaluations = 2,
       .idle_timeout = std::chrono::milliseconds::max(),
       .evaluated = [&](const std::string&, int64_t, const Logs&) { other.save_weights(path); }});
  ASSERT_EQ(history["loss"].size(), 2u);
  EXPECT_EQ(history.epochs, (std::vector<int64_t>{0, 1}));
  EXPECT_NE(history["loss"][0], history["loss"][1]);
}

TEST(EvaluateCheckpoints, LooksOnceAtAFileThatIsWrittenAgainBeforeItsTurn) {
  const std::string folder = make_folder();
  Model model = classifier(), other = classifier();
  const auto save = [&](const std::string& name) {
    other.save_weights(str(folder, "/", name, ".safetensors"));
  };
  save("a");
  save("b");
  std::vector<std::string> evaluated;
  evaluate_checkpoints(folder, model, points(8).batch(8),
                       {.poll = std::chrono::milliseconds(2),
                        .max_evaluations = 3,
                        .idle_timeout = kLong,
                        .evaluated = [&](const std::string& path, int64_t, const Logs&) {
                          evaluated.push_back(std::filesystem::path(path).stem());
                          if (evaluated.back() == "a") save("b");
                          if (evaluated == std::vector<std::string>{"a", "b"}) save("c");
                        }});
  EXPECT_EQ(evaluated, (std::vector<std::string>{"a", "b", "c"}));
}

TEST(EvaluateCheckpoints, TakesWhateverNumberAFileHasForItsUpdates) {
  const std::string folder = make_folder(), path = folder + "/weights.safetensors";
  Model model = classifier();
  model.save_weights(path);
  Safetensors content = read_safetensors(path);
  content.tensors["other/iterations"] = Tensor::scalar(std::numeric_limits<double>::infinity());
  write_safetensors(path, content);
  const History history = evaluate_checkpoints(folder, model, points(8).batch(8),
                                               {.max_evaluations = 1, .idle_timeout = kLong});
  EXPECT_EQ(history.epochs, (std::vector<int64_t>{std::numeric_limits<int64_t>::max()}));
}

// So that updates and weights are of one file, whoever replaces it.
TEST(EvaluateCheckpoints, ReadsAFileOnce) {
  const std::string folder = make_folder(), path = folder + "/weights.safetensors";
  Model model = classifier();
  model.save_weights(path);
  const int events = ::inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
  if (events < 0) GTEST_SKIP() << "the system has no watches left";
  EXPECT_GE(::inotify_add_watch(events, path.c_str(), IN_OPEN | IN_CLOSE_NOWRITE), 0);
  evaluate_checkpoints(folder, model, points(8).batch(8),
                       {.max_evaluations = 1, .idle_timeout = kLong});
  char seen[1024];
  EXPECT_EQ(::read(events, seen, sizeof seen), static_cast<ssize_t>(2 * sizeof(inotify_event)))
      << "it is opened, and closed";
  ::close(events);
}

TEST(EvaluateCheckpoints, WritesItsResultsForTensorBoard) {
  const std::string folder = make_folder(), logs = folder + "/logs";
  Model model = classifier();
  model.save_weights(folder + "/weights.safetensors");
  evaluate_checkpoints(folder, model, points(40).batch(40),
                       {.max_evaluations = 1, .idle_timeout = kLong, .log_directory = logs});
  const auto files = contents(logs);
  ASSERT_EQ(files.size(), 1u);
  for (const char* tag : {"evaluation_loss", "evaluation_accuracy"})
    EXPECT_NE(files.begin()->second.find(tag), std::string::npos) << tag;
}

TEST(EvaluateCheckpoints, EndsWhenNothingComes) {
  Model model = classifier();
  const History history = evaluate_checkpoints(
      make_folder() + "/nowhere", model, points(8).batch(8),
      {.poll = std::chrono::milliseconds(1), .idle_timeout = std::chrono::milliseconds(5)});
  EXPECT_TRUE(history.epochs.empty());
}

TEST(EvaluateCheckpoints, SaysThatItWaitsForAFirstOne) {
  const std::string folder = make_folder() + "/later";
  std::promise<std::string> said;
  set_notice_sink([&, is_first = true](std::string_view lines) mutable {
    if (std::exchange(is_first, false)) said.set_value(std::string(lines));
  });
  std::thread training([&] {
    auto line = said.get_future();
    if (line.wait_for(kLong) != std::future_status::ready) return;
    EXPECT_TRUE(line.get().starts_with(
        "evaluate_checkpoints: waiting for a first checkpoint (*.safetensors) in " + folder +
        ", which is no folder yet, since "));
    std::filesystem::create_directory(folder);
    classifier().save_weights(folder + "/weights.safetensors");
  });
  Model model = classifier();
  const History history = evaluate_checkpoints(
      folder, model, points(8).batch(8),
      {.poll = std::chrono::milliseconds(2), .max_evaluations = 1, .idle_timeout = kLong});
  set_notice_sink({});
  training.join();
  EXPECT_EQ(history.epochs.size(), 1u);
}

// As while it is copied there; the rest comes as soon as the next file was looked at.
TEST(EvaluateCheckpoints, ComesBackToAFileThatWasCutOff) {
  const std::string folder = make_folder(), copied = folder + "/a.safetensors";
  Model model = classifier();
  model.save_weights(copied);
  const std::string whole = read_file(copied);
  std::filesystem::resize_file(copied, whole.size() / 2);
  std::filesystem::last_write_time(
      copied, std::filesystem::file_time_type::clock::now() - std::chrono::hours(1));
  std::filesystem::create_directory(folder + "/folder.safetensors");
  model.save_weights(folder + "/b.safetensors");
  std::vector<std::string> evaluated;
  ::testing::internal::CaptureStderr();
  evaluate_checkpoints(folder, model, points(8).batch(8),
                       {.poll = std::chrono::milliseconds(2),
                        .max_evaluations = 2,
                        .idle_timeout = kLong,
                        .evaluated = [&](const std::string& path, int64_t, const Logs&) {
                          evaluated.push_back(std::filesystem::path(path).stem());
                          if (evaluated.back() == "b") write_file_atomically(copied, whole);
                        }});
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(evaluated, (std::vector<std::string>{"b", "a"}));
  EXPECT_NE(said.find("passed over until it is written again: " + copied), std::string::npos)
      << said;
}

TEST(EvaluateCheckpoints, NeedsAFolder) {
  Model model = classifier();
  EXPECT_NE(error_of([&] {
              evaluate_checkpoints("", model, points(8).batch(8), {.idle_timeout = kLong});
            }).find("folder is \"\""),
            std::string::npos);
}

TEST(EvaluateCheckpoints, RefusesWhatDoesNotFitTheModel) {
  const std::string folder = make_folder();
  auto small = nn::Sequential({nn::Dense(2)});
  small.build({{DType::kFloat32, {1, 2}}});
  small.save_weights(folder + "/small.safetensors");
  Model model = classifier();
  EXPECT_NE(error_of([&] {
              evaluate_checkpoints(folder, model, points(8).batch(8), {.idle_timeout = kLong});
            }).find("small.safetensors"),
            std::string::npos);
}

}  // namespace
}  // namespace cohort::testing
