// Training that goes on where its disk does not: one that is full to any page, read-only, or
// broken.
#include "tests/testing/small_disk.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <sys/syscall.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include <gmock/gmock.h>

#include "tests/testing/event_fields.h"
#include "tests/train/testing.h"

namespace {
std::atomic<bool> disk_is_broken = false;
}  // namespace

// As of a disk that tells of its fault when what was written is to be kept.
extern "C" int fsync(int descriptor) {
  if (!disk_is_broken) return static_cast<int>(::syscall(SYS_fsync, descriptor));
  errno = EIO;
  return -1;
}

namespace cohort::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

int64_t count(const std::string& text, const std::string& part) {
  int64_t found = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

int64_t failed_saves(const Training& training) {
  Logs logs;
  training.add_failed_saves(logs);
  return static_cast<int64_t>(logs["failed_saves"]);
}

// A folder with a checkpoint and a backup of each epoch.
struct Saved {
  std::string folder = make_folder();
  std::string checkpoint = folder + "/model.safetensors",
              backup = folder + "/backup/backup.safetensors";

  std::vector<CallbackPtr> callbacks() const {
    return {callbacks::ModelCheckpoint(checkpoint),
            callbacks::BackupAndRestore(folder + "/backup", {.delete_checkpoint = false})};
  }
  // The two files, which have to be whole, and the only ones.
  std::map<std::string, std::string> files() const {
    std::map<std::string, std::string> found;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
      const std::string path = entry.path().string();
      EXPECT_FALSE(path.ends_with(".tmp")) << path;
      if (path != checkpoint && path != backup) continue;
      found[path] = read_file(path);
      read_safetensors(path);
    }
    EXPECT_EQ(found.size(), 2u);
    return found;
  }
};

int64_t differing(const std::map<std::string, std::string>& some,
                  const std::map<std::string, std::string>& others) {
  return std::ranges::count_if(
      some, [&](const auto& file) { return others.at(file.first) != file.second; });
}

class SmallDisks : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!SmallDisk::refusal().empty()) GTEST_SKIP() << SmallDisk::refusal();
    disk_.emplace(saved_.folder);
  }

  const Saved saved_;
  std::optional<SmallDisk> disk_;
};

// Each epoch with another level is followed by one with room. At the highest levels there is room
// for nothing, and at those below for more and more of a file.
TEST_F(SmallDisks, EndNoTrainingWhateverRoomTheyHave) {
  std::vector<int64_t> failed_at;  // by level
  std::map<std::string, std::string> before;
  int64_t failed_before = 0;
  const auto look = [&](const Training& training) {
    const auto files = saved_.files();
    const int64_t failed =
        failed_saves(training) - std::exchange(failed_before, failed_saves(training));
    if (!before.empty()) {
      EXPECT_EQ(differing(files, before), 2 - failed) << "the others are as they were";
      read_safetensors(saved_.backup + ".previous");
    }
    before = files;
    return failed;
  };
  auto hooks = std::make_shared<Hooks>();
  hooks->epoch_begin = [&](Training& training) {
    const int64_t epoch = training.epoch();
    if (epoch % 2 == 0) {
      if (epoch > 0) failed_at.push_back(look(training));
      return disk_->fill(0);
    }
    EXPECT_EQ(look(training), 0) << "there was room again, after level " << epoch / 2 - 1;
    disk_->fill(epoch / 2);
  };
  auto callbacks = saved_.callbacks();
  callbacks.insert(callbacks.begin(), {hooks, callbacks::CSVLogger(saved_.folder + "/log.csv"),
                                       callbacks::TensorBoard(saved_.folder + "/events")});
  auto model = wide_classifier(), undisturbed = wide_classifier();
  const int64_t epochs = 2 * SmallDisk::kPages + 1;
  ::testing::internal::CaptureStderr();
  const History history = fit(model, epochs, callbacks);
  const std::string said = ::testing::internal::GetCapturedStderr();

  EXPECT_EQ(static_cast<int64_t>(failed_at.size()), SmallDisk::kPages);
  EXPECT_EQ(failed_at.front(), 0);
  EXPECT_EQ(failed_at.back(), 2);
  EXPECT_TRUE(std::ranges::is_sorted(failed_at)) << ::testing::PrintToString(failed_at);
  EXPECT_GE(std::ranges::count(failed_at, 2), 20) << "as many as a file has pages";
  const auto failed = static_cast<int64_t>(history["failed_saves"].back());
  EXPECT_EQ(failed, failed_before);
  EXPECT_EQ(count(said, "warning: ModelCheckpoint could not write in epoch ") +
                count(said, "warning: BackupAndRestore could not write in epoch "),
            failed);
  EXPECT_GE(count(said, "No space left on device"), failed);
  EXPECT_EQ(count(read_file(saved_.folder + "/log.csv"), "\n"), epochs + 1);
  const auto events = contents(saved_.folder + "/events/train");
  ASSERT_EQ(events.size(), 1u);
  EXPECT_GT(std::ssize(event_fields::records(events.begin()->second)), SmallDisk::kPages);
  fit(undisturbed, epochs, {});
  EXPECT_EQ(bits(model), bits(undisturbed));
}

// Trains for four epochs, of which the second finds a disk that refuses everything.
void train_past_a_fault(const Saved& saved, const std::function<void(bool)>& break_disk,
                        const std::string& reason) {
  std::map<std::string, std::string> before;
  auto hooks = std::make_shared<Hooks>();
  hooks->epoch_begin = [&](Training& training) {
    if (training.epoch() == 1) before = saved.files();
    if (training.epoch() == 2) {
      EXPECT_EQ(saved.files(), before);
    }
    break_disk(training.epoch() == 1);
  };
  auto callbacks = saved.callbacks();
  callbacks.push_back(hooks);
  ::testing::internal::CaptureStderr();
  const History history = fit(wide_classifier(), 4, callbacks);
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(history["failed_saves"], (std::vector<double>{2, 2, 2}));
  EXPECT_EQ(differing(saved.files(), before), 2);
  for (const auto& [callback, path] : {std::pair("ModelCheckpoint", saved.checkpoint),
                                       std::pair("BackupAndRestore", saved.backup)})
    EXPECT_THAT(
        said,
        AllOf(HasSubstr(str("warning: ", callback, " could not write in epoch 2 after step 1: ")),
              HasSubstr(str(reason,
                            "; what it has written in epoch 1 after step 1 is "
                            "still there: ",
                            path, "\n"))));
}

TEST_F(SmallDisks, EndNoTrainingWhileTheyAreReadOnly) {
  train_past_a_fault(
      saved_, [&](bool on) { disk_->set_read_only(on); }, "Read-only file system");
}

TEST(BrokenDisk, EndsNoTraining) {
  train_past_a_fault(
      Saved(), [](bool on) { disk_is_broken = on; }, "Input/output error");
}

}  // namespace
}  // namespace cohort::testing
