#include <memory>
#include <string>
#include <vector>

#include "tests/strategies/parameter_server/hostile.h"
#include "tests/testing/eventually.h"

namespace cohort::testing {
namespace {

using parameter_server::Exchange;

// Requests of several tasks to make a shard, of which the first one's come first.
class HostileMaking : public Hostile {
 protected:
  static constexpr uint64_t kLong = 600'000;

  struct Making {
    std::shared_ptr<Recorder> caller = std::make_shared<Recorder>();
    std::shared_ptr<Exchange> exchange;

    bool is_answered() const {
      return eventually([&] { return caller->replied.load(); });
    }
    // REQUIRES: it is.
    parameter_server::proto::Created created() const {
      parameter_server::proto::Reply reply;
      EXPECT_FALSE(caller->refused) << caller->refused->what();
      if (const auto message = exchange->next_message()) reply.ParseFromString(message->header);
      return reply.created();
    }
    void give(char byte) const {
      const std::string value(exchange->payload_bytes(), byte);
      if (!value.empty()) exchange->receive(value.data(), value.size());
      exchange->complete();
    }
    bool holds_value() const { return !exchange->room().empty(); }
  };

  Making make(const std::string& task, const ShardSpec& spec, uint64_t timeout_ms = kLong,
              bool has_value = true) {
    Request asking = request();
    asking.mutable_caller()->set_task(task);
    asking.set_timeout_ms(timeout_ms);
    parameter_server::write_shard_spec(spec, asking.mutable_create());
    if (has_value) asking.mutable_create()->set_payload_bytes(spec.spec().bytes());
    Making making;
    Service::Session session;
    making.exchange = service_.open(asking.SerializeAsString(), making.caller, session);
    return making;
  }

  const ShardSpec spec_ = whole_shard("new", kFour);
};

TEST_F(HostileMaking, ACreateOfAShardThatIsThereTakesNoMemory) {
  const auto caller = std::make_shared<Recorder>();
  const auto open = [&](const TensorSpec& spec) {
    Request create = request();
    parameter_server::write_shard_spec(whole_shard("w", spec), create.mutable_create());
    create.mutable_create()->set_payload_bytes(spec.bytes());
    Service::Session session;
    return service_.open(create.SerializeAsString(), caller, session);
  };
  EXPECT_ERROR(open({DType::kFloat32, {5}}), Code::kInvalidArgument, "\"w\" has been created with");
  const auto same = open(kFour);
  EXPECT_TRUE(same->room().empty());
  const std::string value(kFour.bytes(), '\1');
  EXPECT_TRUE(same->receive(value.data(), value.size()));
  same->complete();
  EXPECT_TRUE(eventually([&] { return caller->replied.load(); }));
  EXPECT_FALSE(caller->refused);
  EXPECT_EQ(values_of(service_.shard("w")->part(0)), (std::vector<float>{0, 0, 0, 0}));
}

TEST_F(HostileMaking, OfAShardThatSeveralBringOneValueIsHeld) {
  Making first = make("worker:0", spec_);
  const Making second = make("worker:1", spec_), looking = make("worker:2", spec_, kLong, false);
  EXPECT_TRUE(first.holds_value());
  EXPECT_FALSE(second.holds_value());
  second.give('\2');
  looking.give('\0');
  first.give('\1');
  ASSERT_TRUE(first.is_answered());
  EXPECT_FALSE(first.created().existed());
  first.exchange.reset();
  for (const Making& other : {second, looking}) {
    ASSERT_TRUE(other.is_answered());
    EXPECT_TRUE(other.created().existed());
  }
  EXPECT_EQ(static_cast<const char*>(service_.shard("new")->part(0).raw())[0], '\1');
}

TEST_F(HostileMaking, AShardWhoseMakerGoesIsForTheNext) {
  Making first = make("worker:0", spec_);
  const Making second = make("worker:1", spec_);
  EXPECT_TRUE(first.holds_value());
  second.give('\2');
  first.exchange.reset();
  ASSERT_TRUE(second.is_answered());
  EXPECT_TRUE(second.created().needs_value());
  const Making again = make("worker:1", spec_);
  again.give('\2');
  ASSERT_TRUE(again.is_answered());
  EXPECT_FALSE(again.created().existed());
}

TEST_F(HostileMaking, AMakerWhoseValueDoesNotComeIsNamedWhenTheTimeIsOver) {
  const Making first = make("worker:0", spec_);
  for (const bool has_value : {true, false}) {
    const Making second = make("worker:1", spec_, 0, has_value);
    second.give('\2');
    ASSERT_TRUE(second.is_answered());
    ASSERT_TRUE(second.caller->refused);
    EXPECT_EQ(second.caller->refused->code(), Code::kDeadlineExceeded);
    EXPECT_EQ(second.caller->refused->peer(), "worker:0") << second.caller->refused->what();
  }
}

// Of different shards, too.
TEST_F(HostileMaking, ValuesOnTheirWayTakeNoMoreThanThereIs) {
  const TensorSpec large{DType::kFloat32, {150'000}};  // more than half of it
  const size_t all = service_.memory_left();
  Making first = make("worker:0", whole_shard("a", large)),
         second = make("worker:1", whole_shard("b", large));
  EXPECT_TRUE(first.holds_value());
  EXPECT_EQ(service_.memory_left(), all - large.bytes());
  EXPECT_ERROR(second.holds_value(), Code::kResourceExhausted, "shard \"b\"");
  EXPECT_ERROR(make("worker:2", whole_shard("c", large)), Code::kResourceExhausted, "\"c\"");
  first.exchange.reset();
  second.give('\0');
  ASSERT_TRUE(second.is_answered());
  EXPECT_FALSE(second.created().existed());
  EXPECT_EQ(service_.memory_left(), all - large.bytes()) << "the shard's own";
}

}  // namespace
}  // namespace cohort::testing
