#include "strategies/cluster/check/cluster_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "strategies/cluster/literal_resolver.h"
#include "tests/strategies/cluster/testing.h"
#include "tests/testing/certificates.h"

namespace cohort {
namespace {

using cohort::testing::Certificates;
using cohort::testing::environment;
using cohort::testing::refusal;
using cohort::testing::Variables;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using namespace std::chrono_literals;

ResolvedCluster task(const ClusterSpec::Jobs& jobs, const std::string& type) {
  return {std::make_shared<LiteralResolver>(
              ClusterSpec(jobs), LiteralResolverOptions{.task_type = type, .task_id = 0}),
          "the test says so"};
}

ResolvedCluster alone() { return {std::make_shared<LiteralResolver>(), "the test says so"}; }

Variables tls(const TlsFiles& files) {
  return {{"COHORT_TLS_CERT", files.certificate},
          {"COHORT_TLS_KEY", files.key},
          {"COHORT_TLS_CA", files.authority}};
}

// What a task would end with; "" where it may take part.
std::string refused(const ResolvedCluster& cluster, const Variables& variables) {
  const auto check = check_cluster(cluster, 50ms, environment(variables));
  const auto json = nlohmann::json::parse(check.json());
  EXPECT_EQ(json.contains("refusal"), check.refusal.has_value());
  if (!check.refusal) return "";
  EXPECT_EQ(check.refusal->code(), Code::kFailedPrecondition);
  return check.refusal->message();
}

TEST(ClusterCheck, TellsOfALauncherThatAClusterOfOneTaskSilences) {
  const auto cluster = resolve_cluster(environment({{"RANK", "0"},
                                                    {"WORLD_SIZE", "1"},
                                                    {"MASTER_ADDR", "localhost"},
                                                    {"MASTER_PORT", "29500"},
                                                    {"OMPI_COMM_WORLD_RANK", "1"},
                                                    {"OMPI_COMM_WORLD_SIZE", "2"}}));
  const auto check = check_cluster(cluster, 0s, environment({}));
  for (const std::string& text : {check.table(), check.json()})
    EXPECT_THAT(text, AllOf(HasSubstr("WORLD_SIZE=1"), HasSubstr("OMPI_COMM_WORLD_SIZE=2"),
                            HasSubstr("unset the former")));
}

TEST(ClusterCheckSettings, AreShownButForWhatIsSecret) {
  const auto check = check_cluster(alone(), 0s,
                                   environment({{"COHORT_TLS_LEADER_NAME", "leader.example"},
                                                {"COHORT_JOB_ID", "hidden"},
                                                {"COHORT_TLS_CA", ""},
                                                {"PATH", "/bin"}}));
  EXPECT_THAT(check.table(), AllOf(HasSubstr("COHORT_TLS_LEADER_NAME  leader.example  environment"),
                                   HasSubstr("COHORT_JOB_ID"), Not(HasSubstr("hidden")),
                                   Not(HasSubstr("COHORT_TLS_CA")), Not(HasSubstr("PATH"))));
  const auto json = nlohmann::json::parse(check.json());
  EXPECT_EQ(json["settings"].size(), 2);
  EXPECT_EQ(json["settings"]["COHORT_TLS_LEADER_NAME"], "leader.example");
}

TEST(ClusterCheckSettings, AMistakeInThemIsAnErrorThoughNobodyIsTried) {
  const Certificates certificates;
  certificates.sign("old", Certificates::kNames, "ca", -1);
  const auto expect = [](const Variables& variables, const std::string& what) {
    EXPECT_THAT(refusal([&] { check_cluster(alone(), 0s, environment(variables)); }),
                HasSubstr(what));
  };
  expect({{"COHORT_ALLOW_PLAINTEXT", "yes"}}, "COHORT_ALLOW_PLAINTEXT: found \"yes\"");
  expect({{"COHORT_JOB_ID", "a b"}}, "COHORT_JOB_ID: found \"a b\"");
  expect({{"COHORT_COLLECTIVE_BACKEND", "xyz"}}, "COHORT_COLLECTIVE_BACKEND: found \"xyz\"");
  expect({{"COHORT_COLLECTIVE_BACKEND", ""}}, "COHORT_COLLECTIVE_BACKEND: found \"\"");
  expect({{"COHORT_STALL_WARNING_SECONDS", "-1"}}, "COHORT_STALL_WARNING_SECONDS: found \"-1\"");
  expect({{"COHORT_FLIGHT_RECORDER_SIZE", "x"}}, "COHORT_FLIGHT_RECORDER_SIZE: found \"x\"");
  expect({{"COHORT_TCP_CHECK_PAYLOADS", "2"}}, "COHORT_TCP_CHECK_PAYLOADS: found \"2\"");
  expect({{"COHORT_TLS_CERT", certificates.path("task.pem")}}, "COHORT_TLS_CERT is given");
  expect(tls(certificates.files("none")),
         str("COHORT_TLS_CERT: cannot open ", certificates.path("none.pem")));
  expect(tls(certificates.files("task", "none")),
         str("COHORT_TLS_CA: cannot open ", certificates.path("none.pem")));
  expect(tls({.certificate = "/", .key = "/", .authority = "/"}),
         "COHORT_TLS_CERT: cannot read /: it is not a regular file");
  expect(tls(certificates.files("old")), "has expired");
  check_cluster(alone(), 0s, environment(tls(certificates.files())));
}

TEST(ClusterCheckRefusal, IsOfPlainTextBeyondTheHostThatNobodyAllows) {
  const Certificates certificates;
  for (const char* type : {"worker", "ps"}) {
    const auto beyond =
        task({{"ps", {"192.0.2.1:1"}}, {"worker", {"192.0.2.2:1", "192.0.2.3:1"}}}, type);
    EXPECT_THAT(refused(beyond, {}), HasSubstr("plain text, beyond this host")) << type;
    EXPECT_EQ(refused(beyond, {{"COHORT_ALLOW_PLAINTEXT", "1"}}), "") << type;
    EXPECT_EQ(refused(beyond, tls(certificates.files())), "") << type;
  }
  EXPECT_EQ(refused(task({{"worker", {"127.0.0.1:1", "127.0.0.1:2"}}}, "worker"), {}), "");
  EXPECT_EQ(refused(task({{"worker", {"192.0.2.1:1"}}}, "worker"), {}), "");
  EXPECT_EQ(refused(task({{"worker", {"192.0.2.1:1"}}}, "evaluator"), {}), "");
  EXPECT_EQ(refused(task({{"worker", {"no-such-host.invalid:1", "127.0.0.1:1"}}}, "worker"), {}),
            "");
  EXPECT_EQ(refused(alone(), {}), "");
}

TEST(ClusterCheckRefusal, IsOfAnOwnNameThatLeadsNowhere) {
  EXPECT_THAT(
      refused(task({{"worker", {"127.0.1.1:1", "192.0.2.2:1"}}}, "worker"),
              {{"COHORT_ALLOW_PLAINTEXT", "1"}}),
      AllOf(HasSubstr("127.0.1.1"), HasSubstr("the address at which others reach this host")));
}

}  // namespace
}  // namespace cohort
