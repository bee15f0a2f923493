#include "tests/strategies/parameter_server/hostile.h"

#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <string>

#include "core/base/random.h"
#include "core/graph/serialization.h"
#include "core/ops/array_ops.h"
#include "core/ops/math_ops.h"
#include "core/ops/nn_ops.h"
#include "core/ops/random_ops.h"
#include "core/ops/state_ops.h"
#include "proto/graph.pb.h"
#include "tests/testing/eventually.h"
#include "tests/testing/graph_bytes.h"
#include "tests/testing/trials.h"

namespace cohort::testing {
namespace {

using parameter_server::Exchange;

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
  refused([](auto& p) { p.set_weight(NAN); }, Code::kInvalidArgument, "weight nan");
  refused([](auto& p) { p.set_weight(-1); }, Code::kInvalidArgument, "weight -1");
  refused([](auto& p) { p.set_weight(INFINITY); }, Code::kInvalidArgument, "weight inf");
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
  const auto shape = [](auto& c, const std::vector<int64_t>& dims) {
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
  for (const auto& bounds :
       {std::pair<double, double>(-INFINITY, 1), std::pair<double, double>(0, INFINITY),
        std::pair<double, double>(-1e308, 1e308)})
    for (const int kind : {1, 2})
      refused(
          [&](auto& c) {
            c.mutable_lazy()->set_kind(kind);
            c.mutable_lazy()->set_a(bounds.first);
            c.mutable_lazy()->set_b(bounds.second);
          },
          Code::kInvalidArgument, "finite");
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
    refused(graph_bytes(graph), Code::kInvalidArgument,
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

}  // namespace
}  // namespace cohort::testing
