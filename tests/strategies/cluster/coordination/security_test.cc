#include "strategies/cluster/coordination/security.h"

#include <atomic>
#include <string>

#include <gmock/gmock.h>
#include <grpc/support/log.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include "core/base/file.h"
#include "proto/coordination.grpc.pb.h"
#include "strategies/cluster/coordination/grpc_credentials.h"
#include "tests/strategies/cluster/coordination/job.h"
#include "tests/testing/certificates.h"

namespace cohort::testing {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

TEST(GrpcLog, HasAnErrorOnceAMinuteHoweverOftenItComes) {
  coordination::keep_grpc();
  ::testing::internal::CaptureStderr();
  for (int i = 0; i < 100; ++i) gpr_log(GPR_ERROR, "handshake %d has failed", i);
  const std::string text = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(text, HasSubstr("handshake 0 has failed"));
  EXPECT_EQ(text.find("has failed"), text.rfind("has failed")) << text;
}

class SecurityTest : public ::testing::Test {
 protected:
  SecurityTest() {
    certificates_.sign("stranger", Certificates::kNames, "other-ca");
    certificates_.sign("expired", Certificates::kNames, "ca", -1);
  }
  // What a task with these files gets when it joins a leader with good ones, which waits on, for a
  // task that has good ones, too.
  std::string refused(const TlsFiles& files) {
    LocalJob job(2);
    std::string refusal;
    const auto errors = on_threads(2, [&](int rank) {
      if (rank == 1)
        refusal = error_of([&] {
                    join(job.resolver(1), {.join_timeout = seconds(2), .tls = files});
                  }).what();
      join(job.resolver(rank), {.tls = certificates_.files()})->leave();
    });
    EXPECT_THAT(errors, Each(""));
    return refusal;
  }

  const Certificates certificates_;
};

TEST_F(SecurityTest, TasksWithCertificatesMeet) {
  LocalJob job(3);
  const auto errors = on_threads(3, [&](int rank) {
    const auto member = join(job.resolver(rank), {.tls = certificates_.files()});
    member->store().set(std::to_string(rank), "here");
    EXPECT_EQ(member->store().get(std::to_string((rank + 1) % 3), kPlenty), "here");
    member->leave();
  });
  EXPECT_THAT(errors, Each(""));
}

TEST_F(SecurityTest, TheFilesMayComeFromTheEnvironment) {
  LocalJob job(2);
  const TlsFiles files = certificates_.files();
  const Variables variables = {{"COHORT_TLS_CERT", files.certificate},
                               {"COHORT_TLS_KEY", files.key},
                               {"COHORT_TLS_CA", files.authority},
                               {"COHORT_TLS_LEADER_NAME", "leader.example"}};
  EXPECT_THAT(on_threads(2, [&](int rank) { join(job.resolver(rank), {}, variables)->leave(); }),
              Each(""));
}

TEST_F(SecurityTest, StrangersAreRefused) {
  EXPECT_THAT(refused(certificates_.files("stranger", "both-cas")),
              HasSubstr("for the leader, worker:0"));
  EXPECT_THAT(refused(certificates_.files("stranger", "other-ca")),
              HasSubstr("certificate verify failed"));
  EXPECT_THAT(refused({}), HasSubstr("for the leader, worker:0"));  // plain text
}

TEST_F(SecurityTest, TheLeaderTellsOnceWhoDoesNotSpeakAsItDoes) {
  const TlsFiles with = certificates_.files(), without;
  const auto expect_told = [](const TlsFiles& of_leader, const TlsFiles& of_task,
                              const std::string& why) {
    LocalJob job(2);
    Lines told;
    const auto errors = on_threads(2, [&](int rank) {
      if (rank == 0)
        join(job.resolver(0),
             {.join_timeout = seconds(6), .tls = of_leader, .notice = told.writer()});
      else
        join(job.resolver(1), {.join_timeout = seconds(6), .tls = of_task});
    });
    EXPECT_THAT(errors[0], HasSubstr("1 of 2 tasks have joined"));
    const std::string refusal = "refuses a task at 127.0.0.1";
    const std::string text = told.text();
    EXPECT_THAT(text, AllOf(HasSubstr(refusal), HasSubstr(why), HasSubstr("COHORT_TLS_CERT")));
    EXPECT_EQ(text.find(refusal), text.rfind(refusal)) << text;
  };
  expect_told(with, without, "it does not speak TLS");
  expect_told(without, with, "it speaks TLS, but this task has no certificates");
}

TEST_F(SecurityTest, ALeaderOfAnotherNameIsRefused) {
  TlsFiles files = certificates_.files();
  files.leader_name = "somebody.example";
  EXPECT_THAT(refused(files),
              AllOf(HasSubstr("for the leader, worker:0"), HasSubstr("somebody.example")));
}

// Speaks for a leader, and counts how often it is asked to.
class CountingService final : public proto::Coordination::CallbackService {
 public:
  using proto::Coordination::CallbackService::Attend;
  grpc::ServerBidiReactor<proto::FromMember, proto::FromLeader>* Attend(
      grpc::CallbackServerContext*) override {
    class Ended final : public grpc::ServerBidiReactor<proto::FromMember, proto::FromLeader> {
     public:
      Ended() { Finish(grpc::Status::OK); }
      void OnDone() override { delete this; }
    };
    ++calls_;
    return new Ended;
  }
  int calls() const { return calls_; }

 private:
  std::atomic<int> calls_ = 0;
};

// A server with a leader's credentials.
class CountingServer {
 public:
  explicit CountingServer(const TlsFiles& files) {
    coordination::keep_grpc();
    grpc::ServerBuilder builder;
    builder.AddListeningPort(
        "127.0.0.1:0",
        coordination::server_credentials(coordination::Security(files, false, environment({}))),
        &port_);
    builder.RegisterService(&service_);
    server_ = builder.BuildAndStart();
  }
  // Whether a call with these credentials has been served; who is refused tries again for `limit`.
  bool serves(const std::shared_ptr<grpc::ChannelCredentials>& credentials, seconds limit) const {
    const auto stub =
        proto::Coordination::NewStub(grpc::CreateChannel(str("127.0.0.1:", port_), credentials));
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + limit);
    const auto stream = stub->Attend(&context);
    proto::FromLeader answer;
    while (stream->Read(&answer)) continue;
    return stream->Finish().ok();
  }
  int calls() const { return service_.calls(); }

 private:
  CountingService service_;
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

TEST_F(SecurityTest, StrangersAreRefusedBeforeTheirCallsAreHeard) {
  const CountingServer server(certificates_.files());
  const std::string authority = read_file(certificates_.path("ca.pem"));
  const auto of = [&](const std::string& task) {
    return grpc::SslCredentials({authority, read_file(certificates_.path(task + ".key")),
                                 read_file(certificates_.path(task + ".pem"))});
  };
  const std::pair<const char*, std::shared_ptr<grpc::ChannelCredentials>> strangers[] = {
      {"expired", of("expired")},
      {"of another authority", of("stranger")},
      {"without a certificate", grpc::SslCredentials({.pem_root_certs = authority})},
      {"in plain text", grpc::InsecureChannelCredentials()}};
  for (const auto& [what, credentials] : strangers)
    EXPECT_FALSE(server.serves(credentials, seconds(2))) << what;
  EXPECT_EQ(server.calls(), 0);
  EXPECT_TRUE(server.serves(of("task"), kPlenty));
  EXPECT_EQ(server.calls(), 1);
}

// Whoever has a certificate for another task, at once and without harm to the job.
TEST_F(SecurityTest, ATaskIsWhatItsCertificateSays) {
  const auto named = [&](const std::string& uri) {
    certificates_.sign("named", str(Certificates::kNames, ",URI:", uri));
    return certificates_.files("named");
  };
  LocalJob job(2);
  const auto errors = on_threads(2, [&](int rank) {
    if (rank == 0) return void(join(job.resolver(0), {.tls = certificates_.files()})->leave());
    for (const char* uri : {"cohort://*/worker/2", "cohort://*/ps/1", "cohort://red/worker/1"})
      EXPECT_THAT(error_of([&] { join(job.resolver(1), {.tls = named(uri)}); }).what(),
                  AllOf(HasSubstr("PERMISSION_DENIED"), HasSubstr(uri), HasSubstr("worker:1")));
    join(job.resolver(1), {.tls = named("cohort://*/worker/1")})->leave();
  });
  EXPECT_THAT(errors, Each(""));
}

TEST_F(SecurityTest, ACertificateThatNamesATaskMayBeRequired) {
  LocalJob job(2);
  const Variables variables = {{"COHORT_TLS_REQUIRE_TASK", "1"}};
  certificates_.sign("leader", str(Certificates::kNames, ",URI:cohort://*/worker/0"));
  certificates_.sign("worker", str(Certificates::kNames, ",URI:cohort://*/worker/1"));
  const auto errors = on_threads(2, [&](int rank) {
    if (rank == 1) {
      EXPECT_THAT(error_of([&] {
                    join(job.resolver(1), {.tls = certificates_.files()}, variables);
                  }).what(),
                  HasSubstr("COHORT_TLS_REQUIRE_TASK"));
    }
    join(job.resolver(rank), {.tls = certificates_.files(rank == 0 ? "leader" : "worker")},
         variables)
        ->leave();
  });
  EXPECT_THAT(errors, Each(""));
}

TEST_F(SecurityTest, FilesThatAreMissingOrBrokenAreNamed) {
  const auto message = [&](const TlsFiles& files) {
    LocalJob job(2);
    return std::string(error_of([&] { join(job.resolver(0), {.tls = files}); }).what());
  };
  const TlsFiles good = certificates_.files();
  EXPECT_THAT(message({.certificate = good.certificate}),
              AllOf(HasSubstr("COHORT_TLS_CERT is given"), HasSubstr("COHORT_TLS_CA is missing")));
  EXPECT_THAT(message({good.certificate, certificates_.path("absent"), good.authority}),
              HasSubstr("absent"));
  EXPECT_THAT(message({good.certificate, certificates_.path("log"), good.authority}),
              HasSubstr("no private key"));
  EXPECT_THAT(message({certificates_.path("log"), good.key, good.authority}),
              HasSubstr("no certificate"));
  EXPECT_THAT(message({good.certificate, certificates_.path("stranger.key"), good.authority}),
              AllOf(HasSubstr("(COHORT_TLS_KEY)"), HasSubstr("does not belong")));
  EXPECT_THAT(message(certificates_.files("expired")), HasSubstr("has expired"));
  EXPECT_THAT(message(certificates_.files("stranger")),
              AllOf(HasSubstr("INVALID_ARGUMENT: the certificate in "),
                    HasSubstr("stranger.pem (COHORT_TLS_CERT) is not signed by an authority in "),
                    HasSubstr("ca.pem (COHORT_TLS_CA)")));
}

}  // namespace
}  // namespace cohort::testing
