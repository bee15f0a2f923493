#include "strategies/cluster/coordination/certified_tasks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/strategies/cluster/coordination/job.h"

namespace cohort::testing {
namespace {

using coordination::CertifiedTasks;
using ::testing::HasSubstr;

// "" where the task may be, else what it is told.
std::string refusal(const std::vector<std::string>& names, const std::string& task,
                    bool required = false) {
  const CertifiedTasks tasks(names, required);
  const Error error = error_of([&] { tasks.check("blue", task); });
  if (error.message() == "no error") return "";
  EXPECT_EQ(error.code(), Code::kPermissionDenied);
  return error.message();
}

TEST(CertifiedTasks, ACertificateWithoutATaskIsForAllUnlessThatIsRequired) {
  EXPECT_EQ(refusal({}, "worker:1"), "");
  EXPECT_EQ(refusal({"leader.example", "spiffe://a/b"}, "ps:0"), "");
  EXPECT_THAT(refusal({"leader.example"}, "ps:0", true), HasSubstr("names no task"));
  EXPECT_EQ(refusal({"cohort://blue/ps/0"}, "ps:0", true), "");
}

TEST(CertifiedTasks, ACertificateIsForTheTasksThatItNames) {
  for (const char* uri : {"cohort://blue/worker/1", "cohort://*/worker/1", "cohort://blue/worker/*",
                          "cohort://*/worker/*"}) {
    EXPECT_EQ(refusal({uri}, "worker:1"), "") << uri;
    EXPECT_EQ(refusal({"leader.example", "cohort://blue/ps/0", uri}, "worker:1"), "") << uri;
    EXPECT_THAT(refusal({uri}, "ps:1"), HasSubstr(str("is for ", uri)));
  }
}

TEST(CertifiedTasks, ACertificateIsForTheExecutorOfItsTasks) {
  EXPECT_EQ(refusal({"cohort://blue/worker/1"}, "worker:1/executor"), "");
  EXPECT_NE(refusal({"cohort://blue/worker/1"}, "worker:11/executor"), "");
  EXPECT_NE(refusal({"cohort://blue/worker/1"}, "worker/1:executor"), "");
  EXPECT_NE(refusal({"cohort://blue/worker/*"}, "worker/executor"), "");
}

// Each of them would count as one more participant.
TEST(CertifiedTasks, ACertificateIsForNoOtherPartsOfItsTasks) {
  for (const char* part : {"/a", "/lane-0", "/writes", "/", "/executors", "/a/executor",
                           "/executor/a", "/executor/executor"})
    for (const char* uri : {"cohort://blue/worker/1", "cohort://*/worker/*"})
      EXPECT_NE(refusal({uri}, str("worker:1", part)), "") << part << " of " << uri;
}

TEST(CertifiedTasks, OthersAreRefused) {
  for (const char* uri :
       {"cohort://red/worker/1", "cohort://blue/worker/11", "cohort://blue/worker/",
        "cohort://blue/worker", "cohort://blue/*/1", "cohort://blue/worker/1/", "cohort://",
        "cohort://blue/worker/1/2", "cohort://blue//1", "cohort:///worker/1"})
    EXPECT_NE(refusal({uri}, "worker:1"), "") << uri;
  EXPECT_NE(refusal({"cohort://blue/worker/*"}, "worker"), "");
}

TEST(CertifiedTasks, TheCaseOfTheSchemeAloneDoesNotMatter) {
  for (const char* uri : {"COHORT://blue/worker/1", "Cohort://*/worker/1"}) {
    EXPECT_EQ(refusal({uri}, "worker:1"), "") << uri;
    EXPECT_NE(refusal({uri}, "worker:2"), "") << uri;
  }
  for (const char* uri : {"cohort://Blue/worker/1", "cohort://blue/Worker/1"})
    EXPECT_NE(refusal({uri}, "worker:1"), "") << uri;
}

TEST(CertifiedTasks, AUriOfTheSchemeThatNamesNoTaskAllowsNone) {
  for (const char* uri : {"cohort:", "cohort:worker/1", "cohort:/blue/worker/1", "COHORT:*",
                          "cohort:blue/worker/1"}) {
    EXPECT_THAT(refusal({uri}, "worker:1"), HasSubstr(str("is for ", uri)));
    EXPECT_TRUE(CertifiedTasks({uri}, false).is_restricted()) << uri;
    EXPECT_EQ(refusal({uri, "cohort://blue/worker/1"}, "worker:1"), "") << uri;
  }
  EXPECT_FALSE(CertifiedTasks({"cohort", "cohorts://blue/worker/1"}, false).is_restricted());
}

}  // namespace
}  // namespace cohort::testing
