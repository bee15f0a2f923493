#include "core/base/temporary_folder.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>

#include "tests/data/testing.h"

namespace cohort {
namespace {

namespace fs = std::filesystem;

using data::expect_error;
using data::TempDir;

// In a folder of the test's own.
class TemporaryFolders : public ::testing::Test {
 protected:
  TemporaryFolders() { setenv("TMPDIR", dir_.root().c_str(), 1); }
  ~TemporaryFolders() override {
    if (before_)
      setenv("TMPDIR", before_->c_str(), 1);
    else
      unsetenv("TMPDIR");
  }

  const TempDir dir_;

 private:
  static std::optional<std::string> environment(const char* name) {
    const char* value = std::getenv(name);
    return value ? std::optional<std::string>(value) : std::nullopt;
  }
  const std::optional<std::string> before_ = environment("TMPDIR");
};

TEST_F(TemporaryFolders, AreNewAndPrivateAndStay) {
  const std::string first = make_temporary_folder("run"), second = make_temporary_folder("run");
  EXPECT_NE(first, second);
  for (const std::string& folder : {first, second}) {
    EXPECT_TRUE(folder.starts_with(dir_.path("run-"))) << folder;
    ASSERT_TRUE(fs::is_directory(folder)) << folder;
    EXPECT_EQ(fs::status(folder).permissions(), fs::perms::owner_all) << folder;
  }
}

TEST_F(TemporaryFolders, GoWithTheirObjectAndWithWhatIsInThem) {
  {
    const TemporaryFolder folder("run");
    ASSERT_TRUE(fs::is_directory(folder.path()));
    fs::create_directory(folder.path() + "/below");
    std::ofstream(folder.path() + "/below/file") << "text";
  }
  EXPECT_TRUE(fs::is_empty(dir_.root()));
}

TEST_F(TemporaryFolders, NameTheirPathAndTheReasonWhereTheyCannotBe) {
  const std::string missing = dir_.path("missing");
  setenv("TMPDIR", missing.c_str(), 1);
  expect_error([] { make_temporary_folder("run"); }, Code::kNotFound,
               {missing + "/run-XXXXXX", "No such file"});
}

}  // namespace
}  // namespace cohort
