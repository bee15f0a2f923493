// What servers know of the end of their workers, and what a task ps:0 that is asked to stop ends
// with.
#include <filesystem>
#include <functional>
#include <future>
#include <memory>
#include <string>

#include "core/base/program.h"
#include "strategies/cluster/literal_resolver.h"
#include "strategies/parameter_server/snapshot.h"
#include "tests/strategies/parameter_server/job.h"

namespace cohort::testing {
namespace {

// A worker that has been to all servers.
std::unique_ptr<ParameterServerStrategy> at_work(const Job& job, int worker) {
  auto strategy = job.worker(worker);
  strategy->session()->on_all_servers(
      [&](int server) { strategy->session()->client(server).statistics(); });
  return strategy;
}

TEST(EndOfAStrategy, IsToldToAllServers) {
  const Job job(2, 2);
  auto first = at_work(job, 0), second = at_work(job, 1);
  first = nullptr;
  for (const int server : {0, 1}) EXPECT_FALSE(job.server(server)->is_done());
  second = nullptr;
  for (const int server : {0, 1}) EXPECT_TRUE(job.server(server)->is_done());
}

TEST(EndOfAStrategy, IsNotTheEndOfTheWorkWhereAnErrorHasLedToIt) {
  const Job job(1, 1);
  const auto work = [&] {
    const auto strategy = at_work(job, 0);
    invalid("no more data");
  };
  EXPECT_ERROR(work(), Code::kInvalidArgument, "no more data");
  EXPECT_FALSE(job.server(0)->is_done());
}

TEST(EndOfAStrategy, IsNotTheEndOfTheWorkWhereItIsToStop) {
  const Job job(1, 1);
  auto strategy = at_work(job, 0);
  request_stop(StopRequest::kTermination);
  strategy = nullptr;
  init();  // forgets it
  EXPECT_FALSE(job.server(0)->is_done());
}

// What ps:0 throws, or that it returns, when SIGTERM has come to it after this visit of worker:0.
Error end_after(const std::function<void(std::unique_ptr<ParameterClient>& client)>& visit,
                const std::string& snapshots = "") {
  const launcher::ReservedPort port;
  const Options options{
      .resolver = std::make_shared<LiteralResolver>(
          ClusterSpec(ClusterSpec::Jobs{{"ps", {port.address()}}, {"worker", {"127.0.0.1:1"}}}),
          LiteralResolverOptions{.task_type = "ps", .task_id = 0}),
      .snapshot_folder = snapshots,
      .job_id = "job"};
  auto served = std::async(std::launch::async, [&] {
    return error_of([&] { EXPECT_TRUE(run_parameter_server(options)); });
  });
  auto client = std::make_unique<ParameterClient>(
      Address::parse(port.address()), ParameterClientOptions{.task = "worker:0", .job_id = "job"},
      no_environment);
  visit(client);
  request_stop(StopRequest::kTermination);
  const Error end = served.get();
  init();  // forgets it
  return end;
}

TEST(StoppedServerTask, IsToBeStartedAgainUnlessAllAreDone) {
  EXPECT_EQ(end_after([](auto&) {}).code(), Code::kCancelled) << "nobody has come";
  EXPECT_EQ(end_after([](auto& client) {
              client->statistics();
              client = nullptr;
            }).code(),
            Code::kCancelled)
      << "worker:0 has gone without a word";
  EXPECT_EQ(end_after([](auto& client) {
              client->statistics();
              client->say_done();
            }).message(),
            "no error")
      << "though it is connected";
}

TEST(AProgramOnItsOwn, FindsWhatItHadAtItsEnd) {
  const TemporaryFolder folder("ps");
  for (const float before : {0.0f, 1.0f, 2.0f}) {
    ParameterServerStrategy strategy({.resolver = std::make_shared<LiteralResolver>(),
                                      .snapshot_folder = folder.path(),
                                      .snapshot_interval = std::chrono::milliseconds(0),
                                      .job_id = "job"});
    const auto scope = strategy.scope();
    const auto v =
        create_variable({.name = "v", .spec = {DType::kFloat32, {}}, .initial_value = [] {
                           return Tensor::scalar(0.0f);
                         }});
    EXPECT_EQ(v->value().item(), before);
    v->assign(Tensor::scalar(before + 1));
  }
}

class StoppedServerTaskWithAFolder : public ::testing::Test {
 protected:
  bool has_snapshot() const {
    return std::filesystem::exists(str(folder_.path(), "/ps-0/", parameter_server::kSnapshotFile));
  }
  const TemporaryFolder folder_{"ps"};
};

TEST_F(StoppedServerTaskWithAFolder, TakesALastSnapshot) {
  EXPECT_EQ(end_after([](auto&) {}, folder_.path()).code(), Code::kCancelled);
  EXPECT_TRUE(has_snapshot());
}

TEST_F(StoppedServerTaskWithAFolder, IsNotTakenForOneOfMoreServers) {
  end_after([](auto&) {}, folder_.path());
  const launcher::ReservedPort port;
  const Options options{.resolver = std::make_shared<LiteralResolver>(
                            ClusterSpec(ClusterSpec::Jobs{{"ps", {port.address(), "127.0.0.1:2"}},
                                                          {"worker", {"127.0.0.1:1"}}}),
                            LiteralResolverOptions{.task_type = "ps", .task_id = 0}),
                        .snapshot_folder = folder_.path(),
                        .job_id = "job"};
  EXPECT_ERROR(run_parameter_server(options), Code::kFailedPrecondition,
               "was written by one of 1 servers, and this is one of 2");
}

TEST_F(StoppedServerTaskWithAFolder, HasEndedWellWhenTheJobEndsItMeanwhile) {
  const auto visit = [](auto& client) {
    client->statistics();
    request_stop(StopRequest::kTermination);
    client->shut_down();
  };
  EXPECT_EQ(end_after(visit, folder_.path()).message(), "no error");
  EXPECT_FALSE(has_snapshot()) << "nobody wants it";
}

}  // namespace
}  // namespace cohort::testing
