#include <atomic>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>

#include <grpcpp/grpcpp.h>

#include "core/base/random.h"
#include "core/graph/serialization.h"
#include "core/ops/array_ops.h"
#include "core/ops/math_ops.h"
#include "core/ops/nn_ops.h"
#include "core/ops/random_ops.h"
#include "core/ops/state_ops.h"
#include "proto/graph.pb.h"
#include "proto/parameter_server.pb.h"
#include "strategies/parameter_server/link.h"
#include "strategies/parameter_server/service.h"
#include "strategies/parameter_server/spec_message.h"
#include "strategies/parameter_server/wire.h"
#include "tests/strategies/parameter_server/raw_requests.h"
#include "tests/strategies/parameter_server/testing.h"
#include "tests/testing/eventually.h"
#include "tests/testing/trials.h"

namespace cohort::testing {
namespace {

using parameter_server::Caller;
using parameter_server::Exchange;
using parameter_server::Link;
using parameter_server::Message;
using parameter_server::Piece;
using parameter_server::Service;
using parameter_server::timeout_of;
using parameter_server::proto::Request;

TEST(Timeout, IsWhatTheCallerSaysAndNeverOverflows) {
  EXPECT_EQ(timeout_of(7'200'000).count(), 7'200'000);
  const auto now = std::chrono::steady_clock::now();
  EXPECT_TRUE(now + timeout_of(UINT64_MAX) > now);
}

// A server without network that holds "w", four zeros, and "bare", which has no update.
class Hostile : public ::testing::Test {
 protected:
  Hostile()
      : service_({.job_id = "job",
                  .max_bytes = 1 << 20,
                  .threads = 1,
                  .notice = [](const std::string&) {}},
                 [] {}) {
    service_.create(whole_shard("w", kFour), floats({0, 0, 0, 0}));
    ShardSpec bare = whole_shard("bare", kFour);
    bare.update = {};
    service_.create(bare, floats({0, 0, 0, 0}));
  }

  class Recorder : public Caller {
   public:
    void resume() override {}
    void reply() override { answered_ = replied = true; }
    void refuse(const Error& error) override {
      if (answered_.exchange(true)) return;
      refused = error;
      replied = true;
    }
    bool has_gone() const override { return gone; }
    std::atomic<bool> replied = false, gone = false;
    std::optional<Error> refused;  // to be read once it has replied

   private:
    std::atomic<bool> answered_ = false;
  };

  static Request request() {
    Request request;
    request.mutable_caller()->set_protocol(parameter_server::kProtocolVersion);
    request.mutable_caller()->set_job_id("job");
    request.mutable_caller()->set_task("worker:0");
    request.mutable_caller()->set_incarnation(1);
    return request;
  }
  static parameter_server::proto::Push& add_push(Request& request) {
    auto& push = *request.mutable_update()->add_pushes();
    push.set_shard("w");
    push.set_sequence(1);
    push.set_learning_rate(1);
    push.set_rows(-1);
    push.set_payload_bytes(16);
    return push;
  }
  static parameter_server::proto::Create& add_create(Request& request) {
    parameter_server::write_shard_spec(whole_shard("new", kFour), request.mutable_create());
    request.mutable_create()->set_payload_bytes(16);
    return *request.mutable_create();
  }

  static Request write(uint64_t sequence) {
    Request request = Hostile::request();
    request.mutable_assign()->set_shard("w");
    request.mutable_assign()->set_payload_bytes(16);
    request.mutable_assign()->set_sequence(sequence);
    return request;
  }

  // What becomes of a request all bytes of whose payload are this one.
  Error outcome(const Request& request, char byte = '\0') {
    return outcome(request.SerializeAsString(), byte);
  }
  Error outcome(const std::string& header, char byte = '\0') {
    const auto caller = std::make_shared<Recorder>();
    Service::Session session;
    try {
      const auto exchange = service_.open(header, caller, session);
      const std::string bytes(std::min<uint64_t>(exchange->payload_bytes(), 1 << 20), byte);
      if (bytes.size() < exchange->payload_bytes()) return Error(Code::kUnknown, "cut off");
      if (!bytes.empty()) exchange->receive(bytes.data(), bytes.size());
      exchange->complete();
      while (!caller->replied) std::this_thread::yield();
      if (!caller->refused)
        while (exchange->next_message()) {
        }
    } catch (const Error& error) {
      return error;
    }
    return caller->refused.value_or(Error(Code::kUnknown, "no error"));
  }

  Service service_;
};

#define EXPECT_REFUSED(request, error_code, part)                                 \
  do {                                                                            \
    const Error refused = outcome(request);                                       \
    EXPECT_EQ(refused.code(), error_code) << refused.what();                      \
    EXPECT_NE(refused.message().find(part), std::string::npos) << refused.what(); \
    EXPECT_EQ(service_.shard("w")->version(), 1u);                                \
    EXPECT_EQ(service_.shards().size(), 2u);                                      \
  } while (false)

TEST_F(Hostile, Strangers) {
  Request wrong = request();
  wrong.mutable_stats();
  wrong.mutable_caller()->set_protocol(99);
  EXPECT_REFUSED(wrong, Code::kFailedPrecondition, "version 99");
  wrong = request();
  wrong.mutable_stats();
  wrong.mutable_caller()->set_job_id("another");
  EXPECT_REFUSED(wrong, Code::kFailedPrecondition, "\"another\"");
  wrong = request();
  wrong.mutable_stats();
  wrong.mutable_caller()->set_task("");
  EXPECT_REFUSED(wrong, Code::kInvalidArgument, "name of a task");
  wrong.mutable_caller()->set_task(std::string(100'000, 'x'));
  EXPECT_REFUSED(wrong, Code::kInvalidArgument, "name of a task");
  EXPECT_REFUSED(request(), Code::kUnimplemented, "kind");
  EXPECT_REFUSED(std::string("\xff\xff\xff"), Code::kInvalidArgument, "header");
}

TEST_F(Hostile, AnOldStartOfATask) {
  Request old = request(), young = request();
  old.mutable_stats();
  young.mutable_stats();
  young.mutable_caller()->set_incarnation(2);
  EXPECT_EQ(outcome(old).message(), "no error");
  EXPECT_EQ(outcome(young).message(), "no error");
  EXPECT_REFUSED(old, Code::kFailedPrecondition, "started again");
}

TEST_F(Hostile, Pushes) {
  const auto refused = [&](const auto& change, Code code, const char* part) {
    Request wrong = request();
    change(add_push(wrong));
    EXPECT_REFUSED(wrong, code, part);
  };
  refused([](auto& p) { p.set_shard("v"); }, Code::kNotFound, "\"v\"");
  refused([](auto& p) { p.set_shard("bare"); }, Code::kInvalidArgument, "not trained");
  refused([](auto& p) { p.set_sequence(0); }, Code::kInvalidArgument, "sequence");
  refused([](auto& p) { p.set_acknowledged(9); }, Code::kInvalidArgument, "sequence");
  refused([](auto& p) { p.set_learning_rate(NAN); }, Code::kInvalidArgument, "nan");
  refused([](auto& p) { p.set_rows(-2); }, Code::kInvalidArgument, "-2 rows");
  refused([](auto& p) { p.set_rows(INT64_MAX); }, Code::kResourceExhausted, "limit");
  refused([](auto& p) { p.set_rows(1), p.set_payload_bytes(1); }, Code::kInvalidArgument, "bytes");
  const auto spec = [](auto& p, const std::vector<int64_t>& said) {
    p.mutable_spec()->Assign(said.begin(), said.end());
  };
  refused([&](auto& p) { spec(p, {0, 2, 2}); }, Code::kInvalidArgument, "is float32[2,2]");
  refused([&](auto& p) { spec(p, {-1, 4}); }, Code::kInvalidArgument, "-1 is not a dtype");
  refused([&](auto& p) { spec(p, {INT64_MAX}); }, Code::kInvalidArgument, "is not a dtype");
  refused([&](auto& p) { spec(p, {0, -4}); }, Code::kInvalidArgument, "-4");
  refused([&](auto& p) { spec(p, std::vector<int64_t>(20, 1)); }, Code::kInvalidArgument, "");
  refused([](auto& p) { p.set_payload_bytes(15); }, Code::kInvalidArgument, "16 bytes");
  refused([](auto& p) { p.set_payload_bytes(UINT64_MAX); }, Code::kInvalidArgument, "16 bytes");
  for (const char* source : {"worker:1", "worker:0/writes", "chief:0", "chief:0/lane-",
                             "chief:0/lane-01", "chief:0/lane--1", "chief:0/lane-1/writes",
                             "chief:0/lane-18446744073709551616", "worker:1/lane-1"})
    refused([&](auto& p) { p.set_source(source), p.set_source_sequence(1); },
            Code::kInvalidArgument, source);
  refused([](auto& p) { p.set_encoding(77); }, Code::kInvalidArgument, "encoding 77");
  refused([](auto& p) { p.set_encoding(-1); }, Code::kInvalidArgument, "encoding -1");
  refused([](auto& p) { p.set_encoding(4); }, Code::kInvalidArgument, "16");
  Request twice = request();
  add_push(twice);
  add_push(twice);
  EXPECT_REFUSED(twice, Code::kInvalidArgument, "twice");
  Request nothing = request();
  nothing.mutable_update();
  EXPECT_REFUSED(nothing, Code::kInvalidArgument, "no push");
}

TEST_F(Hostile, APushForAnotherTaskDoesNotEndIt) {
  Request own = request(), forged = request();
  own.mutable_stats();
  EXPECT_EQ(outcome(own).message(), "no error");
  forged.mutable_caller()->set_task("worker:1");
  auto& push = add_push(forged);
  push.set_source("worker:0");
  push.set_source_incarnation(99);
  push.set_source_sequence(1);
  EXPECT_REFUSED(forged, Code::kInvalidArgument, "of \"worker:0\"");
  EXPECT_EQ(outcome(own).message(), "no error");
}

// Its request had begun before the later start was seen: it may have pushed by the time that all of
// it has come.
TEST_F(Hostile, PushesOfAStartThatEndsOnTheirWayChangeNothing) {
  const auto pushing = [](bool passed_on, uint64_t start) {
    Request request = Hostile::request();
    request.mutable_caller()->set_task(passed_on ? str("worker:", start) : "worker:0");
    request.mutable_caller()->set_incarnation(start);
    auto& push = add_push(request);
    if (!passed_on) return request;
    push.set_source("chief:0/lane-0");
    push.set_source_incarnation(start);
    push.set_source_sequence(1);
    return request;
  };
  uint64_t version = 1;
  for (const bool passed_on : {false, true}) {
    const auto caller = std::make_shared<Recorder>();
    Service::Session session;
    const auto old = service_.open(pushing(passed_on, 11).SerializeAsString(), caller, session);
    EXPECT_EQ(outcome(pushing(passed_on, 12)).message(), "no error");
    const std::string payload(16, '\1');
    old->receive(payload.data(), payload.size());
    old->complete();
    EXPECT_TRUE(eventually([&] { return caller->replied.load(); }));
    ASSERT_TRUE(caller->refused);
    EXPECT_EQ(caller->refused->code(), Code::kFailedPrecondition) << caller->refused->what();
    EXPECT_EQ(service_.shard("w")->version(), ++version);
    const auto marks = service_.shard("w")->marks();
    EXPECT_EQ(marks.at(passed_on ? "chief:0/lane-0" : "worker:0"), (parameter_server::Mark{12, 1}));
  }
}

TEST_F(Hostile, Pulls) {
  const auto refused = [&](const auto& change, Code code, const char* part) {
    Request wrong = request();
    auto& pull = *wrong.mutable_update()->add_pulls();
    pull.set_shard("w");
    pull.set_rows(-1);
    change(pull);
    EXPECT_REFUSED(wrong, code, part);
  };
  refused([](auto& p) { p.set_shard("v"); }, Code::kNotFound, "\"v\"");
  refused([](auto& p) { p.set_part(1); }, Code::kInvalidArgument, "part 1");
  refused([](auto& p) { p.set_part(-1); }, Code::kInvalidArgument, "part -1");
  refused([](auto& p) { p.set_rows(-5); }, Code::kInvalidArgument, "-5 rows");
  refused([](auto& p) { p.set_rows(INT64_MAX); }, Code::kResourceExhausted, "limit");
  refused([](auto& p) { p.set_at_least(50); }, Code::kDeadlineExceeded, "version 50");
}

TEST_F(Hostile, WhatWaitsEndsWithItsCaller) {
  Service service({.job_id = "job",
                   .consistency = {.max_staleness = 1, .num_workers = 2},
                   .threads = 1,
                   .notice = [](const std::string&) {}},
                  [] {});
  service.create(whole_shard("w", kFour), floats({0, 0, 0, 0}));
  Request pulling = request(), starting = request();
  auto& pull = *pulling.mutable_update()->add_pulls();
  pull.set_shard("w");
  pull.set_rows(-1);
  pull.set_at_least(50);
  starting.mutable_clock()->set_completed(9);
  for (Request* waiting : {&pulling, &starting}) {
    waiting->set_timeout_ms(600'000);
    const auto caller = std::make_shared<Recorder>();
    Service::Session session;
    auto exchange = service.open(waiting->SerializeAsString(), caller, session);
    const std::weak_ptr<Exchange> left = exchange;
    exchange->complete();
    exchange.reset();
    EXPECT_FALSE(left.expired());
    caller->gone = true;
    EXPECT_TRUE(eventually([&] { return left.expired(); }));
  }
}

TEST_F(Hostile, Writes) {
  EXPECT_REFUSED(write(0), Code::kInvalidArgument, "no number");
  Request wrong = write(1);
  wrong.mutable_assign()->set_part(1);
  EXPECT_REFUSED(wrong, Code::kInvalidArgument, "part 1");
  wrong = write(1);
  wrong.mutable_assign()->set_payload_bytes(15);
  EXPECT_REFUSED(wrong, Code::kInvalidArgument, "16 bytes");
}

TEST_F(Hostile, ACreateOfAShardThatIsThereTakesNoMemory) {
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

// The first of two copies of a request may come last, when its caller has long gone on.
TEST_F(Hostile, OldCopiesOfWritesChangeNothing) {
  const auto first_byte = [&] {
    return static_cast<const char*>(service_.shard("w")->part(0).raw())[0];
  };
  outcome(write(1), 1);
  outcome(write(2), 2);
  EXPECT_EQ(outcome(write(1), 1).message(), "no error");
  EXPECT_EQ(outcome(write(2), 3).message(), "no error");
  EXPECT_EQ(first_byte(), 2);
  EXPECT_EQ(service_.shard("w")->version(), 3u);
  Request other = write(1);
  other.mutable_caller()->set_task("worker:1");
  outcome(other, 4);
  EXPECT_EQ(first_byte(), 4) << "each task has numbers of its own";
  Request later = write(1);
  later.mutable_caller()->set_incarnation(2);
  outcome(later, 5);
  EXPECT_EQ(first_byte(), 5) << "and each of its starts";
}

TEST_F(Hostile, Shards) {
  const auto refused = [&](const auto& change, Code code, const char* part) {
    Request wrong = request();
    change(add_create(wrong));
    EXPECT_REFUSED(wrong, code, part);
  };
  const auto shape = [](auto& c, std::vector<int64_t> dims) {
    c.clear_shape();
    for (const int64_t d : dims) c.add_shape(d);
  };
  refused([](auto& c) { c.set_shard(""); }, Code::kInvalidArgument, "name");
  refused([](auto& c) { c.set_dtype(99); }, Code::kInvalidArgument, "99");
  refused([](auto& c) { c.set_dtype(-1); }, Code::kInvalidArgument, "-1");
  refused([](auto& c) { c.set_dtype(7); }, Code::kInvalidArgument, "no gradient");
  refused([&](auto& c) { shape(c, {-4}); }, Code::kInvalidArgument, "-4");
  refused(
      [&](auto& c) {
        shape(c, {int64_t{1} << 40, int64_t{1} << 40});
      },
      Code::kInvalidArgument, "");
  refused([&](auto& c) { shape(c, std::vector<int64_t>(20, 1)); }, Code::kInvalidArgument, "");
  refused([&](auto& c) { shape(c, {int64_t{1} << 40}), c.set_rows(int64_t{1} << 40); },
          Code::kResourceExhausted, "bytes");
  refused([](auto& c) { c.set_begin(3); }, Code::kInvalidArgument, "rows 3");
  refused([](auto& c) { c.set_rows(INT64_MAX); }, Code::kInvalidArgument, "");
  refused([](auto& c) { c.set_begin(-1); }, Code::kInvalidArgument, "rows -1");
  refused([](auto& c) { c.set_payload_bytes(8); }, Code::kInvalidArgument, "16 bytes");
  refused([](auto& c) { c.set_update("nonsense"); }, Code::kDataLoss, "");
  refused([](auto& c) { c.set_row_block(INT64_MAX); }, Code::kInvalidArgument, "blocks");
  refused([](auto& c) { c.set_row_block(0); }, Code::kInvalidArgument, "blocks");
  refused([](auto& c) { c.add_slots()->set_name("value"); }, Code::kInvalidArgument, "two slots");
  refused([](auto& c) { c.mutable_lazy()->set_kind(9); }, Code::kInvalidArgument, "initializer");
  refused([](auto& c) { c.mutable_lazy()->set_max_rows(-1); }, Code::kInvalidArgument, "-1 rows");
  refused([](auto& c) { c.mutable_lazy()->set_a(std::nan("")); }, Code::kInvalidArgument, "NaN");
  refused(
      [](auto& c) {
        auto& slot = *c.add_slots();
        slot.set_name("sum");
        slot.set_initial(std::nan(""));
      },
      Code::kInvalidArgument, "\"sum\" begins with NaN");
}

// Updates that would do something else than update.
TEST_F(Hostile, Updates) {
  class Part : public Resource {
   public:
    const std::string& name() const override { return name_; }
    const TensorSpec& spec() const override { return kFour; }
    std::string name_ = "value";
  };
  const TensorSpec scalar{DType::kFloat64, {}};
  const auto update = [&](const std::function<Value(Value, Value)>& body) {
    GraphFunction function;
    const GraphScope scope(*function.graph);
    const Value gradient = function.graph->add_input("gradient", kFour);
    function.graph->add_input("learning_rate", scalar);
    function.graph->add_input("step", scalar);
    const auto part = std::make_shared<Part>();
    ops::assign(part, body(ops::read_variable(part), gradient));
    return serialize_function(function);
  };
  const auto refused = [&](const std::string& bytes, Code code, const char* part) {
    Request wrong = request();
    add_create(wrong).set_update(bytes);
    EXPECT_REFUSED(wrong, code, part);
  };
  refused(update([](Value w, Value) { return w + ops::random_uniform(kFour.shape); }),
          Code::kInvalidArgument, "not allowed");
  // These would fail with some gradients, in the middle.
  refused(update([](Value w, Value g) {
            const Value one = ops::constant(1, DType::kFloat32);
            return ops::require(w, ops::less(ops::reduce_max(g), one), "too large");
          }),
          Code::kInvalidArgument, "Require is not allowed");
  refused(update([](Value w, Value g) {
            const Value label = ops::cast(ops::reshape(ops::reduce_max(g), {1}), DType::kInt32);
            return w + ops::sparse_softmax_cross_entropy(ops::reshape(w, {1, 4}), label);
          }),
          Code::kInvalidArgument, "SparseSoftmaxCrossEntropy is not allowed");
  refused(update([](Value w, Value) {
            const Value huge = ops::constant(Tensor::zeros(DType::kFloat32, {1 << 19, 1}));
            return w + ops::reduce_sum(huge + w);
          }),
          Code::kResourceExhausted, "bytes");
  GraphFunction empty;
  refused(serialize_function(empty), Code::kInvalidArgument, "takes a gradient");
  for (const int64_t parts : {0, 2}) {  // number 0 of none, and one behind the last of two
    proto::Graph graph;
    ASSERT_TRUE(graph.ParseFromString(update([](Value w, Value g) { return w + g; })));
    auto& part = *graph.mutable_nodes()->rbegin()->add_attributes();
    part.set_name("part");
    part.mutable_integers()->add_values(parts);
    part.mutable_integers()->add_values(parts);
    refused(graph.SerializeAsString(), Code::kInvalidArgument,
            "op AssignVariable takes no attribute \"part\"");
  }
}

TEST_F(Hostile, MissingRowsOfASlotOrWithAReset) {
  service_.create(lazy_table(8, 1, {}), Tensor());
  Request fine = request();
  auto& rows = *fine.mutable_assign_rows();
  rows.set_shard("table");
  rows.set_rows(1);
  rows.set_payload_bytes(sizeof(int64_t) + sizeof(float));
  rows.set_sequence(1);
  rows.set_only_missing(true);
  Request of_slot = fine, with_reset = fine;
  of_slot.mutable_assign_rows()->set_part(1);
  with_reset.mutable_assign_rows()->set_reset(true);
  for (const Request& wrong : {of_slot, with_reset})
    EXPECT_EQ(outcome(wrong).code(), Code::kInvalidArgument);
  EXPECT_EQ(service_.shard("table")->rows_in_use(), 0);
  EXPECT_EQ(outcome(fine).message(), "no error");
  EXPECT_EQ(service_.shard("table")->rows_in_use(), 1);
}

// Which task may ask for what.
TEST_F(Hostile, TasksThatAreNotTheLeader) {
  const TemporaryFolder folder("ps");
  const std::pair<bool, std::function<void(Request&)>> kinds[] = {
      {true, [&](Request& r) { r.mutable_snapshot()->set_folder(folder.path()); }},
      {true, [&](Request& r) { r.mutable_restore()->set_folder(folder.path()); }},
      {true, [](Request& r) { r.mutable_shutdown(); }},
      {false, [](Request& r) { r.mutable_done(); }},
      {false, [](Request& r) { r.mutable_stats(); }},
      {false, [](Request& r) { r.mutable_clock(); }},
      {false, [](Request& r) { r.mutable_upgrade(); }},
      {false, [](Request& r) { add_create(r); }},
      {false, [](Request& r) { add_push(r); }},
      {false, [](Request& r) { r = write(1); }},
      {false, [](Request& r) { r.mutable_list_rows()->set_shard("w"); }},
      {false, [](Request& r) { r.mutable_assign_rows()->set_shard("w"); }}};
  for (const std::string task :
       {"chief:0", "worker:0", "worker:1", "chief:1", "worker:00", "ps:0", "evaluator:0", "worker"})
    for (const auto& [for_leaders, make] : kinds) {
      Request asking = request();
      make(asking);
      asking.mutable_caller()->set_task(task);
      const Error error = outcome(asking);
      const bool leads = task == "chief:0" || task == "worker:0";
      EXPECT_EQ(error.code() == Code::kPermissionDenied, for_leaders && !leads)
          << task << ": " << error.what() << " " << asking.ShortDebugString();
    }
}

// The leader's mistakes do not end the server either.
TEST_F(Hostile, FoldersThatAreNone) {
  const TemporaryFolder folder("ps");
  const std::string file = folder.path() + "/file", long_name(5000, 'x');
  std::ofstream(file) << "no folder";
  for (const std::string& wrong :
       {std::string(), file, file + "/within", folder.path() + "/" + long_name, long_name,
        std::string("/dev/null"), std::string("/proc/1/fdinfo/none"), std::string(1, '\0')}) {
    Request asking = request();
    asking.mutable_snapshot()->set_folder(wrong);
    EXPECT_NE(outcome(asking).message(), "no error") << wrong;
    asking.mutable_restore()->set_folder(wrong);
    EXPECT_NE(outcome(asking).message(), "no error") << wrong;
  }
  Request nowhere = request();
  nowhere.mutable_snapshot();
  EXPECT_REFUSED(nowhere, Code::kInvalidArgument, "folder");
  nowhere.mutable_restore();
  EXPECT_REFUSED(nowhere, Code::kInvalidArgument, "folder");
}

// Any change of a byte gives an error or a reply, never a crash, a hang or much memory.
TEST_F(Hostile, MutatedRequests) {
  const TemporaryFolder scratch("ps");  // for folders that mutations may ask for
  const auto before = std::filesystem::current_path();
  std::filesystem::current_path(scratch.path());
  std::vector<std::string> seeds;
  Request good = request();
  add_push(good);
  good.mutable_update()->add_pulls()->set_shard("w");
  seeds.push_back(good.SerializeAsString());
  good = request();
  add_create(good);
  seeds.push_back(good.SerializeAsString());
  seeds.push_back(write(1).SerializeAsString());
  // Longer than any name may be, whatever becomes of some of its bytes.
  const std::string folder(2000, 'x');
  good = request();
  good.mutable_snapshot()->set_folder(folder);
  seeds.push_back(good.SerializeAsString());
  good.mutable_restore()->set_folder(folder);
  seeds.push_back(good.SerializeAsString());
  const auto [seed, count] = trials(4711, 4000);
  RandomStream random(seed);
  for (uint64_t i = 0; i < count; ++i) {
    std::string bytes = seeds[random.below(seeds.size())];
    for (uint64_t n = random.below(4); n > 0; --n)
      bytes[random.below(bytes.size())] = static_cast<char>(random.below(256));
    if (random.below(8) == 0) bytes.resize(random.below(bytes.size()));
    outcome(bytes);
  }
  std::filesystem::current_path(before);
  EXPECT_EQ(service_.shard("w")->spec().rows, 4);
}

// --- Over the network

class Wire : public ::testing::Test {
 protected:
  Wire() {
    client_->create(whole_shard("w", kFour), [] { return floats({0, 0, 0, 0}); });
  }
  // Sends raw messages on one call, then expects it to end with a code.
  Code code_of(const std::vector<Message>& messages) const {
    const auto channel =
        grpc::CreateChannel(server_.address().text(), grpc::InsecureChannelCredentials());
    Link link(channel, Link::Unconnected::kWait);
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    if (!link.connect(deadline)) return Code::kUnavailable;
    return error_of([&] {
             for (const Message& message : messages) link.send(message, deadline);
             for (;;)
               link.receive(
                   {.begin = [](const std::string&, size_t) {}, .take = [](const char*, size_t) {}},
                   deadline);
           })
        .code();
  }
  static Piece bytes(size_t count) {
    const auto owner = std::make_shared<std::string>(count, '\0');
    return {owner, owner->data(), count};
  }
  static std::string header(uint64_t payload) {
    Request request;
    request.mutable_caller()->set_protocol(parameter_server::kProtocolVersion);
    request.mutable_caller()->set_job_id("job");
    request.mutable_caller()->set_task("worker:7");
    request.mutable_caller()->set_incarnation(1);
    auto& push = *request.mutable_update()->add_pushes();
    push.set_shard("w");
    push.set_sequence(1);
    push.set_rows(-1);
    push.set_payload_bytes(payload);
    return request.SerializeAsString();
  }

  TestServer server_;
  std::unique_ptr<ParameterClient> client_ = server_.client();
};

TEST_F(Wire, RefusesMessagesThatDoNotFit) {
  EXPECT_EQ(code_of({{.header = "nonsense", .payload = {}}}), Code::kInvalidArgument);
  EXPECT_EQ(code_of({{.header = "", .payload = {bytes(16)}}}), Code::kFailedPrecondition);
  EXPECT_EQ(code_of({{.header = header(16), .payload = {bytes(17)}}}), Code::kInvalidArgument);
  EXPECT_EQ(code_of({{.header = header(16), .payload = {bytes(8)}},
                     {.header = header(16), .payload = {bytes(8)}}}),
            Code::kInvalidArgument);
  EXPECT_EQ(code_of({{.header = std::string(10 << 20, 'x'), .payload = {}}}),
            Code::kResourceExhausted);
  EXPECT_EQ(values_of(fetch(*client_, whole_shard("w", kFour))), (std::vector<float>(4)));
  EXPECT_GE(server_->statistics().requests_refused, 4u);
}

// A push of which a part has not come is no push.
TEST_F(Wire, DropsPushesThatAreCutOff) {
  {
    const auto channel =
        grpc::CreateChannel(server_.address().text(), grpc::InsecureChannelCredentials());
    Link link(channel, Link::Unconnected::kWait);
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    ASSERT_TRUE(link.connect(deadline));
    link.send({.header = header(16), .payload = {bytes(8)}}, deadline);
  }
  while (server_->statistics().sessions > 1) std::this_thread::yield();
  EXPECT_EQ(server_->statistics().pushes_applied, 0u);
}

TEST_F(Wire, AShardThatIsLeftHalfMadeIsMadeByTheNext) {
  const ShardSpec spec = whole_shard("new", kFour);
  Request asking = request();
  parameter_server::write_shard_spec(spec, asking.mutable_create());
  asking.mutable_create()->set_payload_bytes(16);
  Link link(grpc::CreateChannel(server_.address().text(), grpc::InsecureChannelCredentials()),
            Link::Unconnected::kWait);
  ASSERT_TRUE(link.connect(soon()));
  const uint64_t before = server_->statistics().received_bytes;
  const auto have_come = [&](uint64_t bytes) {
    return eventually([&] { return server_->statistics().received_bytes == before + bytes; });
  };
  std::thread leaving;
  const bool made = client_->create(spec, [&] {
    link.send({.header = asking.SerializeAsString(), .payload = {bytes(8)}}, soon());
    EXPECT_TRUE(have_come(8));
    leaving = std::thread([&] {
      EXPECT_TRUE(have_come(8 + 16));
      link.cancel();
    });
    return floats({1, 2, 3, 4});
  });
  leaving.join();
  EXPECT_TRUE(made);
  EXPECT_EQ(values_of(fetch(*client_, spec)), (std::vector<float>{1, 2, 3, 4}));
}

TEST_F(Wire, LimitsCallsThatAreOpen) {
  TestServer small({.max_sessions = 2});
  std::vector<std::unique_ptr<ParameterClient>> clients;
  for (int i = 0; i < 2; ++i) {
    clients.push_back(small.client(str("worker:", i)));
    clients.back()->statistics();
  }
  EXPECT_ERROR(small.client("worker:2")->statistics(), Code::kResourceExhausted, "2 calls");
  clients[0]->statistics();
}

}  // namespace
}  // namespace cohort::testing
