#include <algorithm>
#include <future>
#include <stdexcept>

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include "proto/coordination.grpc.pb.h"
#include "strategies/cluster/coordination/limits.h"
#include "strategies/cluster/coordination/roster.h"
#include "tests/strategies/cluster/coordination/job.h"
#include "tests/strategies/cluster/coordination/task_process.h"
#include "tests/testing/resources.h"

// A leader in a process of its own, to which strangers send nonsense without end, and a member that
// asks for more than it reads.
namespace cohort::testing {
namespace {

using coordination::kMaxMessageBytes;

std::string tf_config(const LocalJob& job) {
  return str(R"({"cluster":)", job.spec().json(), R"(,"task":{"type":"worker","index":0}})");
}

// Each thread would take memory of its own.
Variables of_leader(const LocalJob& job) {
  return {{"TF_CONFIG", tf_config(job)}, {"MALLOC_ARENA_MAX", "1"}};
}

Resources held_by(const TaskProcess& task) { return resources_of(std::to_string(task.pid())); }

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
        EXPECT_EQ(outcome(bytes), grpc::StatusCode::INVALID_ARGUMENT);
      EXPECT_EQ(member_->store().add("served", 1), ++served_);
      most = std::max(most, held_by(leader_).resident_bytes);
      leader_.output();
    }
    return most;
  }
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
  TaskProcess leader_{of_leader(job_)};
  const std::unique_ptr<Membership> member_ = join(job_.resolver(1));

 private:
  const std::vector<std::string> nonsense_ = nonsense();
  grpc::GenericStub stub_{grpc::CreateChannel(job_.address(0), grpc::InsecureChannelCredentials())};
  int64_t served_ = 0;
};

TEST_F(Flood, OfNonsenseLeavesTheLeaderAsItWas) {
  member_->store().set("kept", "value");
  const Resources usual = held_by(leader_);
  [[maybe_unused]] const int64_t most = flood(100);
#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)  // which keep what was freed
  EXPECT_LE(most, usual.resident_bytes + 2 * kMaxMessageBytes) << "of 400 messages of that size";
#endif
  EXPECT_LE(held_by(leader_).descriptors, usual.descriptors + 8) << "of 400 calls";
  EXPECT_EQ(member_->store().get("kept", kPlenty), "value");
  EXPECT_FALSE(member_->failure());
  leave();
}

// What it would become has no limit.
TEST_F(Flood, ACompressedMessageIsNotDecompressed) {
  EXPECT_NE(outcome(std::string(2 * kMaxMessageBytes, 'x'), GRPC_COMPRESS_GZIP),
            grpc::StatusCode::RESOURCE_EXHAUSTED)
      << "which it is once it has been, and was small before";
  EXPECT_EQ(member_->store().add("served", 1), 1);
  leave();
}

// worker:1 of a job of two, which has set the key "large", and reads no more than it is told to.
class SlowReader {
 public:
  // Of a leader that takes it for dead when it has been silent for so many milliseconds.
  explicit SlowReader(int dead_after)
      : leader_(of_leader(job_), {str("suspect=", dead_after - 1000), str("dead=", dead_after)}) {
    context_.set_deadline(std::chrono::system_clock::now() + kPlenty);
    context_.set_wait_for_ready(true);
    stream_ = stub_->Attend(&context_);
    become_member();
    set_large("large");
    next(proto::FromLeader::kReply);
  }
  ~SlowReader() {
    context_.TryCancel();
    stream_->Finish();
  }

  TaskProcess& leader() { return leader_; }
  void say(const proto::FromMember& message) { EXPECT_TRUE(stream_->Write(message)); }
  void set_large(const std::string& key) {
    proto::FromMember message;
    proto::Set& set = *message.mutable_request()->mutable_set();
    set.set_key(key);
    set.set_value(std::string(KeyValueStore::kMaxValueBytes, 'x'));
    say(message);
  }
  // Answered once the key is there.
  void ask_for(const std::string& key, uint64_t id) {
    proto::FromMember message;
    message.mutable_request()->set_id(id);
    message.mutable_request()->set_get(key);
    message.mutable_request()->set_timeout_ms(milliseconds(kPlenty).count());
    say(message);
  }
  void ask_for_large(uint64_t id) { ask_for("large", id); }
  // Reads up to the next message of this kind.
  proto::FromLeader next(proto::FromLeader::KindCase kind) {
    proto::FromLeader message;
    while (stream_->Read(&message)) {
      if (message.kind_case() == kind) return message;
    }
    throw std::runtime_error("the leader has ended the call");
  }
  // How many replies come before the failure of the job.
  uint64_t replies_before_failure() {
    uint64_t replies = 0;
    proto::FromLeader message;
    while (stream_->Read(&message)) {
      if (message.has_failure()) return replies;
      if (message.has_reply()) ++replies;
    }
    throw std::runtime_error("the leader has ended the call");
  }

 private:
  static std::unique_ptr<proto::Coordination::Stub> stub(const std::string& leader) {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);  // it is about to listen
    return proto::Coordination::NewStub(
        grpc::CreateCustomChannel(leader, grpc::InsecureChannelCredentials(), arguments));
  }

  void become_member() {
    const coordination::Roster roster(job_.resolver(1));
    proto::FromMember message;
    proto::Join& join = *message.mutable_join();
    join.set_protocol(coordination::kProtocolVersion);
    join.set_cluster_hash(roster.cluster_hash());
    join.set_rank(1);
    join.set_size(2);
    say(message);
    int64_t roll_call = 0;
    while (roll_call == 0) roll_call = next(proto::FromLeader::kWaiting).waiting().roll_call();
    message.mutable_present()->set_roll_call(roll_call);
    say(message);
    next(proto::FromLeader::kWelcome);
  }

  const LocalJob job_{2};
  TaskProcess leader_;
  const std::unique_ptr<proto::Coordination::Stub> stub_ = stub(job_.address(0));
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReaderWriter<proto::FromMember, proto::FromLeader>> stream_;
};

TEST(FloodOfAnswers, WhoReadsNoneGetsFewAndIsLost) {
  SlowReader member(3000);
  [[maybe_unused]] const int64_t usual = held_by(member.leader()).resident_bytes;
  for (uint64_t id = 1; id <= 256; ++id) member.ask_for_large(id);
  // By its silence, or its connection, in which the system sees that nothing is taken.
  member.leader().wait_for("peer worker:1");
#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
  EXPECT_LE(held_by(member.leader()).resident_bytes, usual + 24 * kMaxMessageBytes)
      << "of 256 values";
#endif
}

TEST(FloodOfAnswers, ThoseThatAreKeptAreDroppedWhenTheJobFails) {
  SlowReader member(60'000);
  constexpr uint64_t kAnswers = 64;
  for (uint64_t id = 1; id <= kAnswers; ++id) member.ask_for("later", id);
  member.set_large("later");
  member.leader().tell("get later 60000");
  member.leader().wait_for("done get later");
  member.leader().tell("report enough");
  member.leader().wait_for("failed ");
  EXPECT_LT(member.replies_before_failure(), kAnswers);
}

TEST(FloodOfAnswers, WhoReadsAgainGetsAll) {
  SlowReader member(60'000);
  constexpr uint64_t kAnswers = 64;
  for (uint64_t id = 1; id <= kAnswers; ++id) member.ask_for_large(id);
  for (uint64_t id = 1; id <= kAnswers; ++id) {
    const proto::FromLeader answer = member.next(proto::FromLeader::kReply);
    EXPECT_EQ(answer.reply().id(), id);
    EXPECT_EQ(answer.reply().value().size(), KeyValueStore::kMaxValueBytes);
  }
  member.leader().tell("leave 60000");
  proto::FromMember leave;
  leave.mutable_leave()->set_timeout_ms(60'000);
  member.say(leave);
  member.next(proto::FromLeader::kLeft);
  member.leader().wait_for("done leave");
}

}  // namespace
}  // namespace cohort::testing
