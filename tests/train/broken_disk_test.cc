// Backups where the disk breaks, or the process is killed, at any moment of a save.
#include "tests/testing/broken_disk.h"

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "core/train/safetensors.h"
#include "tests/train/testing.h"

namespace cohort::testing {
namespace {

// Of three epochs, where the third save does not come to its end. Whether a call has failed.
bool break_third_save(const std::string& folder, int64_t succeeding, int64_t failing) {
  bool has_failed = false;
  std::optional<BrokenDisk> disk;
  auto hooks = std::make_shared<Hooks>();
  hooks->epoch_end = [&](Training& training, Logs&) {
    if (training.epoch() == 2) disk.emplace(succeeding, failing);
  };
  hooks->epoch_begin = [&](Training& training) {
    if (training.epoch() < 3) return;
    has_failed = disk->has_failed();
    disk.reset();
    fail(Code::kAborted, "the power is gone");
  };
  ::testing::internal::CaptureStderr();
  EXPECT_THROW(fit(classifier(), 5, {hooks, callbacks::BackupAndRestore(folder)}), Error);
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(said.find("BackupAndRestore") != std::string::npos, has_failed) << said;
  return has_failed;
}

int64_t whole_backups(const std::string& folder) {
  int64_t whole = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string path = entry.path().string();
    if (path.ends_with(".tmp")) continue;
    read_safetensors(path);
    ++whole;
  }
  return whole;
}

TEST(Backups, AreTwoWhereverASaveEnds) {
  const std::string root = make_folder();
  auto undisturbed = classifier();
  fit(undisturbed, 5, {});
  const int64_t calls = break_at_each_call([&](int64_t succeeding, int64_t failing) {
    const std::string name = str(failing == 1 ? "one" : "all", "-after-", succeeding);
    const std::string folder = root + "/" + name;
    SCOPED_TRACE(name);
    const bool has_failed = break_third_save(folder, succeeding, failing);
    EXPECT_GE(whole_backups(folder), 2);
    std::optional<int64_t> first;
    auto hooks = std::make_shared<Hooks>();
    hooks->batch_begin = [&](Training& training) {
      if (!first) first = training.epoch();
    };
    auto model = classifier();
    fit(model, 5, {hooks, callbacks::BackupAndRestore(folder)});
    EXPECT_GE(first.value_or(0), has_failed ? 2 : 3) << "epochs before that are not done again";
    EXPECT_EQ(bits(model), bits(undisturbed));
    EXPECT_TRUE(std::filesystem::is_empty(folder)) << "nothing stays in the end";
    return has_failed;
  });
  EXPECT_EQ(calls, 6) << "a file takes four, and two names change";
}

}  // namespace
}  // namespace cohort::testing
