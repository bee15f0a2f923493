#include <algorithm>
#include <future>

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include "proto/coordination.pb.h"
#include "strategies/cluster/coordination/limits.h"
#include "tests/strategies/cluster/coordination/job.h"
#include "tests/strategies/cluster/coordination/task_process.h"
#include "tests/testing/resources.h"

// A leader in a process of its own, to which strangers send nonsense without end.
namespace cohort::testing {
namespace {

using coordination::kMaxMessageBytes;

std::string tf_config(const LocalJob& job) {
  return str(R"({"cluster":)", job.spec().json(), R"(,"task":{"type":"worker","index":0}})");
}

// Beyond the limit, at it but no message, and messages of those who have not joined and cannot.
std::vector<std::string> nonsense() {
  proto::FromMember large, early, misfit;
  large.mutable_report()->set_message(std::string(kMaxMessageBytes, 'x'));
  early.mutable_request()->mutable_set()->set_key("kept");
  early.mutable_request()->mutable_set()->set_value(
      std::string(KeyValueStore::kMaxValueBytes, 'x'));
  misfit.mutable_join()->set_protocol(coordination::kProtocolVersion);
  misfit.mutable_join()->set_job_id(std::string(KeyValueStore::kMaxValueBytes, 'x'));
  return {large.SerializeAsString(), std::string(kMaxMessageBytes, '\xff'),
          early.SerializeAsString(), misfit.SerializeAsString()};
}

class Flood : public ::testing::Test {
 protected:
  // Lets nonsense come, between which a member is served; the most memory that the leader had.
  int64_t flood(int rounds) {
    int64_t most = 0;
    for (; rounds > 0; --rounds) {
      for (const std::string& bytes : nonsense_)
        EXPECT_EQ(outcome(bytes) == grpc::StatusCode::RESOURCE_EXHAUSTED,
                  bytes.size() > size_t{kMaxMessageBytes});
      EXPECT_EQ(member_->store().add("served", 1), ++served_);
      most = std::max(most, leader_resources().resident_bytes);
      leader_.output();
    }
    return most;
  }
  Resources leader_resources() const { return resources_of(std::to_string(leader_.pid())); }
  // Of a call with these bytes as its only message.
  grpc::StatusCode outcome(const std::string& bytes,
                           grpc_compression_algorithm compression = GRPC_COMPRESS_NONE) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + kPlenty);
    context.set_compression_algorithm(compression);
    const grpc::Slice slice(bytes);
    const grpc::ByteBuffer request(&slice, 1);
    grpc::ByteBuffer response;
    const auto status = std::make_shared<std::promise<grpc::Status>>();
    stub_.UnaryCall(&context, "/cohort.proto.Coordination/Attend", grpc::StubOptions(), &request,
                    &response, [status](const grpc::Status& found) { status->set_value(found); });
    const grpc::StatusCode code = status->get_future().get().error_code();
    EXPECT_NE(code, grpc::StatusCode::DEADLINE_EXCEEDED);
    EXPECT_NE(code, grpc::StatusCode::UNAVAILABLE);
    return code;
  }

  void leave() {
    leader_.tell("leave 60000");
    EXPECT_TRUE(member_->leave());
    leader_.wait_for("done leave");
  }

  const LocalJob job_{2};
  // Each thread would take memory of its own.
  TaskProcess leader_{Variables{{"TF_CONFIG", tf_config(job_)}, {"MALLOC_ARENA_MAX", "1"}}};
  const std::unique_ptr<Membership> member_ = join(job_.resolver(1));

 private:
  const std::vector<std::string> nonsense_ = nonsense();
  grpc::GenericStub stub_{grpc::CreateChannel(job_.address(0), grpc::InsecureChannelCredentials())};
  int64_t served_ = 0;
};

TEST_F(Flood, OfNonsenseLeavesTheLeaderAsItWas) {
  member_->store().set("kept", "value");
  [[maybe_unused]] const int64_t usual = flood(30);
  const int64_t descriptors = leader_resources().descriptors;
  [[maybe_unused]] const int64_t most = flood(100);
#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)  // which keep what was freed
  EXPECT_LE(most, usual + 8 * kMaxMessageBytes) << "of 700 messages' worth of bytes";
#endif
  EXPECT_LE(leader_resources().descriptors, descriptors + 8) << "of 400 calls";
  EXPECT_EQ(member_->store().get("kept", kPlenty), "value");
  EXPECT_FALSE(member_->failure());
  leave();
}

// What it would become has no limit.
TEST_F(Flood, ACompressedMessageIsNotDecompressed) {
  EXPECT_NE(outcome(std::string(16 * kMaxMessageBytes, 'x'), GRPC_COMPRESS_GZIP),
            grpc::StatusCode::RESOURCE_EXHAUSTED)
      << "which it is once it has been, and was small before";
  EXPECT_EQ(member_->store().add("served", 1), 1);
  leave();
}

}  // namespace
}  // namespace cohort::testing
