#include "strategies/cluster/settings.h"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/error.h"

namespace cohort {
namespace {

using ::testing::ElementsAreArray;
using ::testing::IsEmpty;

// Those that the pages for users name.
std::set<std::string> documented() {
  std::set<std::string> names;
  const std::regex pattern("COHORT_[A-Z_]*[A-Z]");
  for (const auto& page : std::filesystem::directory_iterator("docs")) {
    std::ifstream file(page.path());
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    for (std::sregex_iterator name(text.begin(), text.end(), pattern), end; name != end; ++name)
      names.insert(name->str());
  }
  for (const char* const macro : {"COHORT_CHECK", "COHORT_REGISTER_KERNEL", "COHORT_REGISTER_OP",
                                  "COHORT_VERSION", "COHORT_VERSION_MAJOR"})
    names.erase(macro);
  return names;
}

TEST(Settings, AreThoseThatAreDocumented) {
  EXPECT_THAT(documented(), ElementsAreArray(settings().begin(), settings().end()));
}

TEST(Settings, AreNotWarnedOfNorIsWhatIsNotCohorts) {
  EXPECT_THAT(warnings_of_settings({settings().begin(), settings().end()}), IsEmpty());
  EXPECT_THAT(warnings_of_settings({"PATH", "COHORT", "COHORTS_TLS_CA", "MY_COHORT_TLS_CA",
                                    "COHORT_RUN", "COHORT_TEST_SEED"}),
              IsEmpty());
}

TEST(Settings, AMisspeltOneIsWarnedOfWithTheNearest) {
  const auto expect = [](const std::string& name, const std::string& meant) {
    const std::string what = str("warning: ", name, " is no setting of Cohort and has no effect");
    EXPECT_THAT(
        warnings_of_settings({"PATH", name}),
        ElementsAreArray({meant.empty() ? what : str(what, "; did you mean ", meant, "?")}));
  };
  expect("COHORT_TLS_REQUIRED_TASK", "COHORT_TLS_REQUIRE_TASK");
  expect("COHORT_KUBERNETES_SERVCE", "COHORT_KUBERNETES_SERVICE");
  expect("COHORT_ALLOW_PLAIN_TEXT", "COHORT_ALLOW_PLAINTEXT");
  expect("COHORT_tls_ca", "");
  expect("COHORT_HOME", "");
  expect("COHORT_", "");
}

}  // namespace
}  // namespace cohort
