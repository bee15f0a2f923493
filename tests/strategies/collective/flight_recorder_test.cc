#include "strategies/collective/flight_recorder.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <future>
#include <map>
#include <string>

#include <gmock/gmock.h>

#include "core/collective/forwarding_communicator.h"
#include "strategies/cluster/coordination/in_memory_store.h"
#include "tests/collective/ranks.h"
#include "tests/strategies/collective/processes.h"
#include "tests/strategies/collective/tcp/tcp_group.h"

namespace cohort::testing {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

// A group over TCP whose ranks are recorded as if each were a process of its own.
struct RecordedGroup {
  RecordedGroup(int size, std::chrono::milliseconds timeout, bool with_store = true)
      : tables(static_cast<size_t>(size)) {
    Group group = make_tcp_group(size, {.timeout = timeout});
    for (size_t r = 0; r < group.size(); ++r) {
      Group own;
      own.push_back(std::move(group[r]));
      ranks.push_back(std::move(record_flights(
          std::move(own), {.store = with_store ? &store : nullptr,
                           .name = "steps",
                           .gather_limit = kHangLimit,
                           .notice = [this, r](const auto& t) { tables[r].push_back(t); }})[0]));
    }
  }

  InMemoryStore store;
  std::vector<std::vector<std::string>> tables;  // by rank
  Group ranks;
};

void reduce(Communicator& communicator, int64_t count) {
  std::vector<float> values(static_cast<size_t>(count), 1);
  const Segment segment{values.data(), values.data(), count};
  communicator.all_reduce({&segment, 1}, DType::kFloat32, ReduceOp::kSum);
}

// The lines of a rank.
std::string of_rank(const std::string& table, int rank) {
  const size_t begin = table.find(str("\n  rank ", rank, ' '));
  if (begin == std::string::npos) return "";
  return table.substr(begin, table.find("\n  rank ", begin + 1) - begin);
}

TEST(FlightRecorderTest, ShowsWhoWaitsInWhatAndWhereTheOthersAre) {
  RecordedGroup group(3, std::chrono::seconds(2));
  std::promise<void> others_failed;
  std::shared_future<void> failed = others_failed.get_future().share();
  std::atomic<int> failures = 0;
  on_ranks(group.ranks, [&](int rank, Communicator& communicator) {
    communicator.barrier();
    if (rank == 2) {  // is somewhere else, and hears nothing
      EXPECT_EQ(failed.wait_for(kHangLimit), std::future_status::ready);
      return;
    }
    EXPECT_EQ(error_of([&] { reduce(communicator, 30000); }).code(), Code::kDeadlineExceeded);
    if (++failures == 2) others_failed.set_value();
  });
  for (const int r : {0, 1}) {
    ASSERT_EQ(group.tables[static_cast<size_t>(r)].size(), 1u);
    const std::string& table = group.tables[static_cast<size_t>(r)][0];
    EXPECT_THAT(table, AllOf(HasSubstr("\"steps\""), HasSubstr(str("rank ", r, " has got "))));
    EXPECT_THAT(of_rank(table, r),
                AllOf(HasSubstr("2 collectives and 0 messages; 1 under way"),
                      ContainsRegex("2 +AllReduce +float32 +120000 bytes  WAITING for ")));
    EXPECT_THAT(of_rank(table, 2), AllOf(HasSubstr("1 collectives and 0 messages; 0 under way"),
                                         ContainsRegex("1 +Barrier +0 bytes  done in ")));
  }
  EXPECT_TRUE(group.tables[2].empty());
}

TEST(FlightRecorderTest, ShowsMessagesAndWhatWasStarted) {
  RecordedGroup group(2, std::chrono::seconds(2));
  std::promise<void> summed, over;
  std::future<void> is_summed = summed.get_future(), is_over = over.get_future();
  on_ranks(group.ranks, [&](int rank, Communicator& communicator) {
    float value = 1;
    const Segment segment{&value, &value, 1};
    const int64_t sum =
        communicator.start_all_reduce({&segment, 1}, DType::kFloat32, ReduceOp::kSum);
    if (rank == 0) {
      EXPECT_EQ(is_summed.wait_for(kHangLimit), std::future_status::ready);
      char target[7];
      EXPECT_EQ(error_of([&] { communicator.receive(target, 7, 1, 5); }).code(),
                Code::kDeadlineExceeded);
      over.set_value();
      communicator.wait(sum);
    } else {
      communicator.wait(sum);
      summed.set_value();
      EXPECT_EQ(is_over.wait_for(kHangLimit), std::future_status::ready);
    }
  });
  ASSERT_EQ(group.tables[0].size(), 1u);
  EXPECT_THAT(of_rank(group.tables[0][0], 0),
              AllOf(ContainsRegex("message 1 +Receive +7 bytes  WAITING.*from rank 1, tag 5"),
                    ContainsRegex("collective 1 +AllReduce +float32 +4 bytes  WAITING")));
  EXPECT_THAT(of_rank(group.tables[0][0], 1),
              ContainsRegex("collective 1 +AllReduce +float32 +4 bytes  done in"));
}

TEST(FlightRecorderTest, KeepsTheLastOperationsOnly) {
  std::vector<std::string> tables;
  const Group group = record_flights(make_in_process_communicators(1),
                                     {.notice = [&](const auto& t) { tables.push_back(t); }});
  Communicator& communicator = *group[0];
  for (int i = 0; i < 70; ++i) {
    float value = 1;
    const Segment segment{&value, &value, 1};
    const int64_t operation =
        communicator.start_all_reduce({&segment, 1}, DType::kFloat32, ReduceOp::kSum);
    communicator.wait(operation);
  }
  for (int i = 0; i < 930; ++i) communicator.barrier();
  communicator.abort(Error(Code::kAborted, "enough"));
  EXPECT_EQ(error_of([&] { communicator.barrier(); }).code(), Code::kAborted);
  EXPECT_EQ(error_of([&] { communicator.barrier(); }).code(), Code::kAborted);
  ASSERT_EQ(tables.size(), 1u);
  EXPECT_THAT(tables[0], AllOf(HasSubstr("1000 collectives"), HasSubstr("enough"),
                               ContainsRegex("collective 1000 +Barrier"),
                               Not(HasSubstr("AllReduce")), Not(HasSubstr("collective 990 "))));
}

// Two ranks of a process, and the tables that they make.
struct Pair {
  float value = 1;
  const Segment segment{&value, &value, 1};
  std::vector<std::string> tables;
  const Group group = record_flights(make_in_process_communicators(2),
                                     {.notice = [&](const auto& t) { tables.push_back(t); }});

  // On rank 0, for which it waits for rank 1.
  int64_t start_sum() const {
    return group[0]->start_all_reduce({&segment, 1}, DType::kFloat32, ReduceOp::kSum);
  }
};

TEST(FlightRecorderTest, AnAbortShowsWhatWasUnderWay) {
  Pair pair;
  const int64_t sum = pair.start_sum();
  pair.group[1]->abort(Error(Code::kAborted, "enough"));
  EXPECT_EQ(error_of([&] { pair.group[0]->wait(sum); }).code(), Code::kAborted);
  ASSERT_EQ(pair.tables.size(), 1u);
  EXPECT_THAT(pair.tables[0], HasSubstr("enough"));
  EXPECT_THAT(of_rank(pair.tables[0], 0), ContainsRegex("AllReduce +float32 +4 bytes  WAITING"));
  EXPECT_THAT(of_rank(pair.tables[0], 1), HasSubstr("has begun 0 collectives"));
}

// A group whose rank finds a mistake in its barrier, at the moment when it is aborted.
class Mistaken final : public ForwardingCommunicator {
 public:
  using ForwardingCommunicator::ForwardingCommunicator;
  void run(const Call&) override {
    entered_.set_value();
    if (is_aborted_.get_future().wait_for(kHangLimit) != std::future_status::ready)
      fail(Code::kInternal, "nobody has aborted the group");
    fail(Code::kInvalidArgument, "a mistake");
  }
  void abort(const Error&) override { is_aborted_.set_value(); }
  void wait_for_call() {
    EXPECT_EQ(entered_.get_future().wait_for(kHangLimit), std::future_status::ready);
  }

 private:
  std::promise<void> entered_, is_aborted_;
};

TEST(FlightRecorderTest, ACallThatIsAbortedTellsOfTheErrorThatItThrows) {
  std::vector<std::string> tables;
  Group group;
  auto owned = std::make_unique<Mistaken>(std::move(make_in_process_communicators(1)[0]));
  Mistaken& mistaken = *owned;
  group.push_back(std::move(owned));
  group = record_flights(std::move(group), {.notice = [&](const auto& t) { tables.push_back(t); }});
  auto code =
      std::async(std::launch::async, [&] { return error_of([&] { group[0]->barrier(); }).code(); });
  mistaken.wait_for_call();
  group[0]->abort(Error(Code::kAborted, "rank 1 has ended"));
  EXPECT_EQ(code.get(), Code::kInvalidArgument);
  ASSERT_EQ(tables.size(), 1u);
  EXPECT_THAT(tables[0], AllOf(HasSubstr("a mistake"), Not(HasSubstr("rank 1 has ended"))));
}

TEST(FlightRecorderTest, AMessageThatHasNoRoomNeedsNoTable) {
  Pair pair;
  on_ranks(pair.group, [&](int rank, Communicator& communicator) {
    char bytes[8] = {};
    const Error error = error_of([&] {
      if (rank == 0)
        communicator.receive(bytes, 4, 1);
      else
        communicator.send(bytes, 8, 0);
    });
    EXPECT_EQ(error.code(), Code::kInvalidArgument) << error.what();
    communicator.barrier();
  });
  EXPECT_THAT(pair.tables, ::testing::IsEmpty());
  pair.group[1]->abort(Error(Code::kAborted, "enough"));
  EXPECT_EQ(pair.tables.size(), 1u) << "that of the group's end";
}

TEST(FlightRecorderTest, AnEndThatWasAskedForNeedsNoTable) {
  std::vector<std::string> tables;
  const Group group = record_flights(make_in_process_communicators(1),
                                     {.notice = [&](const auto& t) { tables.push_back(t); }});
  group[0]->barrier();
  group[0]->abort(Error(Code::kCancelled, "interrupted after step 7"));
  EXPECT_THAT(tables, ::testing::IsEmpty());
  EXPECT_EQ(error_of([&] { group[0]->barrier(); }).code(), Code::kCancelled);
  EXPECT_EQ(tables.size(), 1u) << "of a call that came after it";
}

TEST(FlightRecorderTest, AFileThatIsNoGoodNeedsNoTableWhileNothingIsUnderWay) {
  for (const Code code : {Code::kResourceExhausted, Code::kDataLoss})
    for (const bool under_way : {false, true}) {
      Pair pair;
      on_ranks(pair.group, [](int, Communicator& communicator) { communicator.barrier(); });
      const int64_t sum = under_way ? pair.start_sum() : -1;
      pair.group[1]->abort(Error(code, "the disk is full, or the file damaged"));
      EXPECT_EQ(pair.tables.size(), under_way ? 1u : 0u);
      if (!under_way) continue;
      EXPECT_EQ(error_of([&] { pair.group[0]->wait(sum); }).code(), code);
    }
}

TEST(FlightRecorderTest, AnAbortBeforeTheFirstOperationNeedsNoTable) {
  Pair pair;
  pair.group[1]->abort(Error(Code::kAborted, "enough"));
  EXPECT_THAT(pair.tables, ::testing::IsEmpty());
}

TEST(FlightRecorderTest, AValueThatAnOpRefusesNeedsNoTable) {
  Pair pair;
  const int64_t sum = pair.start_sum();
  pair.group[1]->abort(Error(Code::kOutOfRange, "label 7 is not a class"));
  EXPECT_EQ(error_of([&] { pair.group[0]->wait(sum); }).code(), Code::kOutOfRange);
  EXPECT_THAT(pair.tables, ::testing::IsEmpty());
}

TEST(FlightRecorderTest, AMessageThatIsRefusedAtOnceNeedsNoTable) {
  Pair pair;
  char byte = 0;
  EXPECT_EQ(error_of([&] {
              pair.group[0]->start_send({&byte, 1, 0, 7});
            }).code(),
            Code::kInvalidArgument);
  EXPECT_EQ(error_of([&] {
              pair.group[0]->start_receive({&byte, 1, 2, 7});
            }).code(),
            Code::kInvalidArgument);
  EXPECT_THAT(pair.tables, ::testing::IsEmpty());
  const int64_t sum = pair.start_sum();
  pair.group[1]->abort(Error(Code::kAborted, "enough"));
  EXPECT_EQ(error_of([&] { pair.group[0]->wait(sum); }).code(), Code::kAborted);
  EXPECT_EQ(pair.tables.size(), 1u) << "that of the group's end";
}

TEST(FlightRecorderTest, ShowsTheOpAndTheShapeOfTheFirstTensor) {
  std::vector<std::string> tables;
  const Group group = record_flights(make_in_process_communicators(1),
                                     {.notice = [&](const auto& t) { tables.push_back(t); }});
  std::vector<float> values(6);
  const Segment segments[] = {{values.data(), values.data(), 4},
                              {values.data() + 4, values.data() + 4, 2}};
  const TensorSpec specs[] = {
      {DType::kInt32, {3}}, {DType::kFloat32, {2, 2}}, {DType::kFloat32, {2}}};
  group[0]->run(AllReduceCall{segments, DType::kFloat32, ReduceOp::kMax, specs});
  group[0]->reduce(values.data(), values.data(), 6, DType::kFloat32, ReduceOp::kMean, 0);
  group[0]->abort(Error(Code::kAborted, "enough"));
  ASSERT_EQ(tables.size(), 1u);
  EXPECT_THAT(tables[0], AllOf(ContainsRegex("AllReduce +float32 +24 bytes  done in "),
                               HasSubstr("; max of [2,2]\n"), HasSubstr("; root 0; mean\n")));
}

TEST(FlightRecorderTest, RecordsPartsToo) {
  std::vector<std::string> tables;
  const Group group =
      record_flights(make_in_process_communicators(1),
                     {.name = "whole", .notice = [&](const auto& t) { tables.push_back(t); }});
  const auto part = group[0]->split(0);
  part->barrier();
  part->abort(Error(Code::kAborted, "enough"));
  ASSERT_EQ(tables.size(), 1u);
  EXPECT_THAT(tables[0], AllOf(HasSubstr("\"whole/part\""), HasSubstr("Barrier")));
}

TEST(FlightRecorderTest, ShowsWhenAskedWhatAGroupAndItsPartsDo) {
  std::vector<std::string> tables;
  const auto show = std::make_shared<std::function<void(const std::string&)>>();
  Group group = record_flights(
      make_in_process_communicators(1),
      {.name = "whole", .notice = [&](const auto& t) { tables.push_back(t); }, .show = show});
  auto part = group[0]->split(0);
  part->barrier();
  for (int times = 0; times < 2; ++times) {
    tables.clear();
    (*show)("it takes long");
    ASSERT_EQ(tables.size(), 2u);
    EXPECT_THAT(tables[0], AllOf(HasSubstr("\"whole\" (it takes long)"), HasSubstr("Split")));
    EXPECT_THAT(tables[1], AllOf(HasSubstr("\"whole/part\""), HasSubstr("Barrier")));
  }
  part.reset();
  (*show)("it takes long");
  EXPECT_EQ(tables.size(), 3u) << "there is no part any more";
  group[0]->abort(Error(Code::kAborted, "enough"));
  EXPECT_EQ(tables.size(), 4u) << "an error has its table all the same";
  group.clear();
  (*show)("it takes long");
  EXPECT_EQ(tables.size(), 4u);
}

Environment environment(std::map<std::string, std::string> variables) {
  return [variables = std::move(variables)](const std::string& name) {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  };
}

TEST(FlightRecorderTest, WritesToTheFileThatTheEnvironmentNames) {
  const std::string file = ::testing::TempDir() + "/flight";
  const auto options = flight_recorder_options(
      "steps",
      environment({{"COHORT_FLIGHT_RECORDER_FILE", file}, {"COHORT_FLIGHT_RECORDER_SIZE", "3"}}));
  for (int i = 0; i < 2; ++i) {
    const Group group = record_flights(make_in_process_communicators(1), options);
    for (int call = 0; call < 9; ++call) group[0]->barrier();
    group[0]->abort(Error(Code::kAborted, str("end ", i)));
  }
  std::ifstream written(file + ".rank0");
  const std::string text(std::istreambuf_iterator<char>(written), {});
  EXPECT_THAT(text, AllOf(HasSubstr("end 0"), HasSubstr("end 1"), HasSubstr("\"steps\""),
                          HasSubstr("collective 7"), Not(HasSubstr("collective 6"))));
  std::filesystem::remove(file + ".rank0");
}

TEST(FlightRecorderTest, EveryProcessOfAGroupTellsOfItsRanks) {
  const std::string file = ::testing::TempDir() + "/flights";
  setenv("COHORT_FLIGHT_RECORDER_FILE", file.c_str(), 1);
  Processes group({.scenario = "mismatch", .processes = 3, .ranks_per_process = 2, .hosts = "010"});
  unsetenv("COHORT_FLIGHT_RECORDER_FILE");
  for (int p = 0; p < 3; ++p) {
    EXPECT_EQ(group.wait(p), 0) << group.output(p);
    const std::string name = str(file, ".rank", 2 * p);
    std::ifstream written(name);
    const std::string text(std::istreambuf_iterator<char>(written), {});
    EXPECT_THAT(text, HasSubstr("the ranks of a group must make the same calls"));
    constexpr char kBegun[] = "collective 1 +AllReduce +float32";
    EXPECT_THAT(text, ContainsRegex(kBegun)) << "of the rank that has failed first";
    for (const int r : {2 * p, 2 * p + 1})  // the other one may not have come so far by then
      EXPECT_THAT(of_rank(text, r),
                  AnyOf(ContainsRegex(kBegun), HasSubstr("has begun 0 collectives")));
    std::filesystem::remove(name);
  }
}

TEST(FlightRecorderTest, IsSwitchedOffByASizeOfNothing) {
  const auto options =
      flight_recorder_options("steps", environment({{"COHORT_FLIGHT_RECORDER_SIZE", "0"}}));
  Group group = make_in_process_communicators(1);
  const Communicator* const before = group[0].get();
  EXPECT_EQ(record_flights(std::move(group), options)[0].get(), before);
}

TEST(FlightRecorderTest, RefusesAWrongSize) {
  for (const char* size : {"-1", "x", "1000001", ""})
    EXPECT_EQ(
        error_of([&] {
          flight_recorder_options("steps", environment({{"COHORT_FLIGHT_RECORDER_SIZE", size}}));
        }).code(),
        Code::kInvalidArgument)
        << size;
}

TEST(FlightRecorderTest, WithoutAStoreKnowsOfItsOwnRanks) {
  RecordedGroup group(2, std::chrono::seconds(60), false);
  group.ranks[1]->abort(Error(Code::kCancelled, "enough"));
  EXPECT_EQ(error_of([&] { group.ranks[0]->barrier(); }).code(), Code::kCancelled);
  ASSERT_EQ(group.tables[0].size(), 1u);
  EXPECT_THAT(of_rank(group.tables[0][0], 0), HasSubstr("Barrier"));
  EXPECT_THAT(group.tables[0][0], HasSubstr("1 rank is in another process"));
  EXPECT_EQ(of_rank(group.tables[0][0], 1), "");
}

}  // namespace
}  // namespace cohort::testing
