// Snapshots that are whole, and cannot be read for a reason that passes.
#include <filesystem>
#include <linux/capability.h>
#include <string>
#include <sys/syscall.h>
#include <unistd.h>
#include <utility>

#include "strategies/parameter_server/snapshot.h"
#include "tests/strategies/parameter_server/testing.h"

namespace cohort::testing {
namespace {

// As long as it lives, this thread, and those that it starts, may not read a file; root, neither.
class Unreadable {
 public:
  explicit Unreadable(std::string path) : path_(std::move(path)) {
    std::filesystem::permissions(path_, std::filesystem::perms::none);
    if (syscall(SYS_capget, &header_, rights_) != 0) fail(Code::kInternal, "cannot ask for rights");
    __user_cap_data_struct fewer[_LINUX_CAPABILITY_U32S_3] = {rights_[0], rights_[1]};
    for (auto& set : fewer) set.effective = 0;
    if (syscall(SYS_capset, &header_, fewer) != 0) fail(Code::kInternal, "cannot give up rights");
  }
  ~Unreadable() {
    syscall(SYS_capset, &header_, rights_);
    std::filesystem::permissions(
        path_, std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
  }
  Unreadable(const Unreadable&) = delete;
  Unreadable& operator=(const Unreadable&) = delete;

 private:
  const std::string path_;
  __user_cap_header_struct header_{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct rights_[_LINUX_CAPABILITY_U32S_3] = {};
};

// A folder whose last snapshot has 2, and the one before it 1.
class UnreadSnapshot : public ::testing::Test {
 protected:
  UnreadSnapshot() {
    write(1);
    write(2);
  }
  void write(float value) const {
    parameter_server::SnapshotWriter writer(folder_.path());
    writer.add({.spec = whole_shard("w", kOne), .version = 1, .parts = {floats({value})}});
    writer.commit();
  }
  float value() const {
    return values_of(parameter_server::read_snapshot(folder_.path())[0].load().parts[0])[0];
  }
  std::string path(const std::string& file) const { return folder_.path() + "/" + file; }

  const TemporaryFolder folder_{"ps"};
};

TEST_F(UnreadSnapshot, KeepsAServerFromStarting) {
  for (const char* file : {"shards-2", "snapshot.json"}) {
    const Unreadable unreadable(path(file));
    EXPECT_ERROR(TestServer({.snapshot_folder = folder_.path()}), Code::kPermissionDenied,
                 path(file) + ": Permission denied");
  }
  EXPECT_EQ(value(), 2);
  EXPECT_NE(TestServer({.snapshot_folder = folder_.path()}).line("1 shards from the snapshot"), "");
}

TEST_F(UnreadSnapshot, IsNotReplacedByTheNext) {
  {
    const Unreadable unreadable(path("snapshot.json"));
    EXPECT_ERROR(write(3), Code::kPermissionDenied, path("snapshot.json"));
  }
  EXPECT_EQ(value(), 2);
  parameter_server::go_back_to_previous(folder_.path());
  EXPECT_EQ(value(), 1);
}

}  // namespace
}  // namespace cohort::testing
