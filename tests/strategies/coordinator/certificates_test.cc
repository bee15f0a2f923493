// Coordinator, workers and parameter servers that know each other by certificates, which they find
// where the coordination service finds its own.
#include "tests/testing/certificates.h"

#include "strategies/parameter_server/server.h"
#include "tests/strategies/coordinator/job.h"

namespace cohort::testing {
namespace {

class WithCertificates : public ::testing::Test {
 protected:
  static Environment with(const TlsFiles& files) {
    return [files](const std::string& name) -> std::optional<std::string> {
      if (name == "COHORT_TLS_CERT") return files.certificate;
      if (name == "COHORT_TLS_KEY") return files.key;
      if (name == "COHORT_TLS_CA") return files.authority;
      return std::nullopt;
    };
  }
  TlsFiles of_task(const std::string& task) const {
    certificates_.sign("named", str(Certificates::kNames, ",URI:cohort://job/", task));
    return certificates_.files("named");
  }
  std::unique_ptr<ClusterCoordinator> coordinator(const Environment& environment) {
    ClusterSpec::Jobs jobs{{"worker", {worker_port_.address()}}, {"ps", {server_port_.address()}}};
    return std::make_unique<ClusterCoordinator>(
        ClusterSpec(jobs), CoordinatorOptions{.job_id = "job", .notice = lines_.writer()},
        environment);
  }
  // Why the worker does not let a coordinator in.
  std::string refused(const Environment& environment) {
    const auto one = coordinator(environment);
    return error_of([&] { one->wait_for_workers(1, milliseconds(1500)); }).message();
  }

  const Certificates certificates_;
  const Environment own_ = with(certificates_.files());
  launcher::ReservedPort worker_port_, server_port_;
  Lines lines_;
  ParameterServer server_{Address::parse(server_port_.address()), {.job_id = "job"}, own_};
  WorkerServer worker_{Address::parse(worker_port_.address()),
                       {.job_id = "job", .task = "worker:0", .notice = lines_.writer()},
                       own_};
};

TEST_F(WithCertificates, AllReadTheSameVariables) {
  const auto session = std::make_shared<ServerSession>(
      std::vector{Address::parse(server_port_.address())},
      ParameterClientOptions{.task = "chief:0", .job_id = "job"}, ConsistencyOptions{}, own_);
  const auto variable = std::make_shared<ServerVariable>(
      ServerVariable::Options{.variable = {.name = "v",
                                           .spec = {DType::kFloat32, {}},
                                           .initial_value = [] { return Tensor::scalar(0.0f); }},
                              .servers = {0}},
      session);
  const auto one = coordinator(own_);
  const Function add = function([&](Value x) { return variable->assign_add(x); }, "add");
  for (int i = 0; i < 10; ++i) one->schedule(add, 2.0f);
  one->join(kPatience);
  EXPECT_EQ(variable->value().item(), 20);
}

TEST_F(WithCertificates, ACoordinatorWithoutOneIsNotServed) {
  EXPECT_NE(refused(no_environment).find("0 of 1 workers"), std::string::npos);
  certificates_.sign("stranger", Certificates::kNames, "other-ca");
  EXPECT_NE(refused(with(certificates_.files("stranger", "other-ca"))).find("0 of 1 workers"),
            std::string::npos);
  EXPECT_EQ(worker_.executed(), 0u);
  EXPECT_EQ(coordinator(own_)->schedule(doubled(), 1.0f).get(kPatience).item(), 2);
}

TEST_F(WithCertificates, ACoordinatorIsTheTaskThatItsCertificateNames) {
  const std::string why = refused(with(of_task("worker/1")));
  EXPECT_NE(why.find("cohort://job/worker/1"), std::string::npos) << why;
  EXPECT_GE(worker_.refused(), 1u);
  const auto chief = coordinator(with(of_task("chief/0")));
  EXPECT_EQ(chief->schedule(doubled(), 1.0f).get(kPatience).item(), 2);
}

TEST_F(WithCertificates, ACoordinatorThatExecutesIsOneTask) {
  const launcher::ReservedPort port;
  ParameterServerStrategy strategy(
      {.resolver =
           resolver_of({{"worker", {port.address()}}, {"ps", {server_port_.address()}}}, "worker"),
       .job_id = "job",
       .tls = of_task("worker/0")});
  const auto scope = strategy.scope();
  const auto variable = zero("v");
  const auto add = strategy.function([&](const Value& x) { return variable->assign_add(x); });
  ClusterCoordinator one(strategy, {.notice = lines_.writer()}, no_environment);
  for (int i = 0; i < 3; ++i) one.schedule(add, 2.0f);
  one.join(kPatience);
  EXPECT_EQ(variable->value().item(), 6);
}

TEST_F(WithCertificates, AWorkerOfAnotherAuthorityIsNotGivenWork) {
  certificates_.sign("stranger", Certificates::kNames, "other-ca");
  const launcher::ReservedPort port;
  const WorkerServer impostor(Address::parse(port.address()),
                              {.job_id = "job", .task = "worker:0", .notice = lines_.writer()},
                              with(certificates_.files("stranger", "other-ca")));
  ClusterCoordinator one(ClusterSpec(ClusterSpec::Jobs{{"worker", {port.address()}}}),
                         {.job_id = "job", .notice = lines_.writer()}, own_);
  EXPECT_ERROR(one.wait_for_workers(1, milliseconds(1500)), Code::kDeadlineExceeded,
               "0 of 1 workers");
  EXPECT_EQ(impostor.executed(), 0u);
}

}  // namespace
}  // namespace cohort::testing
