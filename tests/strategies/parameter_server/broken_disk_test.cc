// Snapshots where the disk breaks, or the process is killed, at any moment.
#include "tests/testing/broken_disk.h"

#include <filesystem>
#include <iterator>
#include <string>

#include "strategies/parameter_server/snapshot.h"
#include "tests/strategies/parameter_server/testing.h"

namespace cohort::testing {
namespace {

void write_snapshot(const std::string& folder, float value) {
  parameter_server::SnapshotWriter writer(folder);
  writer.add({.spec = whole_shard("w", kFour), .version = 1, .parts = {floats({value, 2, 3, 4})}});
  writer.commit();
}

float value_in(const std::string& folder) {
  return values_of(parameter_server::read_snapshot(folder)[0].load().parts[0])[0];
}

TEST(Snapshots, AreTheNewOneOrTheOneBeforeAndAnotherWhereverWritingEnds) {
  const int64_t calls = break_at_each_call([](int64_t succeeding, int64_t failing) {
    SCOPED_TRACE(str(failing == 1 ? "one fails" : "all fail", " after ", succeeding));
    const TemporaryFolder folder("ps");
    write_snapshot(folder.path(), 1);
    write_snapshot(folder.path(), 2);
    bool has_failed = false, is_told = false;
    {
      BrokenDisk disk(succeeding, failing);
      const Error error = error_of([&] { write_snapshot(folder.path(), 3); });
      has_failed = disk.has_failed();
      is_told = error.message() != "no error";
      EXPECT_EQ(is_told, error.message().find("Input/output error") != std::string::npos)
          << error.what();
    }
    const float last = value_in(folder.path());
    EXPECT_TRUE(last == 3 || (is_told && last == 2)) << last;
    parameter_server::go_back_to_previous(folder.path());
    EXPECT_GE(value_in(folder.path()), last - 1);
    write_snapshot(folder.path(), 4);
    EXPECT_EQ(value_in(folder.path()), 4);
    EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 4)
        << "two snapshots, and nothing beside them";
    return has_failed;
  });
  EXPECT_EQ(calls, 12) << "three for the values, four for each manifest, and one is removed";
}

}  // namespace
}  // namespace cohort::testing
