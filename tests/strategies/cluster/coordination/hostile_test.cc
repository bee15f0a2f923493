#include <new>

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include "proto/coordination.grpc.pb.h"
#include "strategies/cluster/coordination/limits.h"
#include "strategies/cluster/coordination/roster.h"
#include "tests/strategies/cluster/coordination/job.h"
#include "tests/strategies/cluster/net/http2_frames.h"

// Peers that mean no good: the job goes on.
namespace cohort::testing {
namespace {

class Hostile : public ::testing::Test {
 protected:
  explicit Hostile(const MembershipOptions& options = {})
      : members_(join_all(job_, options)),
        stub_(proto::Coordination::NewStub(
            grpc::CreateChannel(job_.address(0), grpc::InsecureChannelCredentials()))) {}
  ~Hostile() override {
    for (const auto& member : members_) {
      EXPECT_FALSE(member->failure());
      member->store().add("alive", 1);
    }
  }

  // Sends one message; what the leader has to say before it ends the call, and how the call ends.
  struct Response {
    std::vector<proto::FromLeader> messages;
    grpc::Status status;
  };
  Response send(const proto::FromMember& message, const std::string& metadata = "") {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + kPlenty);
    if (!metadata.empty()) context.AddMetadata("x", metadata);
    const auto stream = stub_->Attend(&context);
    stream->Write(message);
    Response response;
    proto::FromLeader answer;
    while (stream->Read(&answer)) response.messages.push_back(answer);
    response.status = stream->Finish();
    return response;
  }

  LocalJob job_{2};
  const Members members_;
  const std::unique_ptr<proto::Coordination::Stub> stub_;
};

TEST_F(Hostile, WhoDoesNotJoinIsDropped) {
  proto::FromMember message;
  message.mutable_request()->mutable_set()->set_key("k");
  const Response response = send(message);
  EXPECT_TRUE(response.messages.empty());
  EXPECT_EQ(response.status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(error_of([&] { members_[0]->store().get("k", milliseconds(0)); }).code(),
            Code::kDeadlineExceeded);
}

TEST_F(Hostile, ALongFirstMessageIsRefusedWhateverItIs) {
  proto::FromMember report, join;
  report.mutable_report()->set_message(std::string(coordination::kMaxMessageBytes, 'x'));
  join.mutable_join()->set_job_id(std::string(100'000, '\n'));
  for (const proto::FromMember& message : {report, join}) {
    const grpc::Status status = send(message).status;
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
    EXPECT_EQ(status.error_message(), "expected a Join first, of at most 4096 bytes");
  }
}

TEST_F(Hostile, MetadataBeyondTheLimitIsRefused) {
  EXPECT_FALSE(send({}, std::string(100'000, 'x')).status.ok());
}

// Which gRPC would go through over and over, for seconds.
TEST_F(Hostile, AnEndlessHeaderBlockIsCutOff) {
  const std::string more = http2::frame(http2::kContinuation, 0, 1, std::string(1024, 'x'));
  EXPECT_LT(http2::copies_taken(job_.address(0), http2::frame(http2::kHeaders, 0, 1, "x"), more,
                                64 << 10),
            64 << 10);
}

TEST_F(Hostile, WhoJoinsWithNonsenseIsRefused) {
  proto::FromMember message;
  message.mutable_join()->set_job_id(std::string(3000, '\n'));
  const Response response = send(message);
  ASSERT_EQ(response.messages.size(), 1u);
  EXPECT_LT(response.messages[0].refused().fault().message().size(), 1000u);
}

// What the leader has to say of them is too much for its memory.
class HostileAtMemorysEnd : public Hostile {
 protected:
  HostileAtMemorysEnd()
      : Hostile(MembershipOptions{.notice = [](const std::string& line) {
          if (line.find("refuses") != std::string::npos) throw std::bad_alloc();
        }}) {}
};

TEST_F(HostileAtMemorysEnd, WhoIsRefusedOfWhatItSaysIsAnswered) {
  proto::FromMember message;
  message.mutable_join()->set_job_id("another");
  EXPECT_TRUE(send(message).status.ok());
}

TEST_F(HostileAtMemorysEnd, WhoIsRefusedByAndByIsAnswered) {
  proto::FromMember message;
  proto::Join& join = *message.mutable_join();
  join.set_protocol(coordination::kProtocolVersion);
  join.set_rank(1);
  join.set_size(job_.size());
  join.set_cluster_hash(coordination::Roster(job_.resolver(0)).cluster_hash());
  join.set_incarnation(members_[1]->incarnation() + 1);
  const Response response = send(message);
  ASSERT_EQ(response.messages.size(), 1u);
  EXPECT_THAT(response.messages[0].refused().fault().message(),
              ::testing::HasSubstr("another living task"));
}

TEST_F(Hostile, WhoSaysNothingIsClosed) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kPlenty);
  const auto stream = stub_->Attend(&context);
  proto::FromLeader answer;
  EXPECT_FALSE(stream->Read(&answer));
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::INVALID_ARGUMENT);
}

}  // namespace
}  // namespace cohort::testing
