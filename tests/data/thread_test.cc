// map, filter, cache and prefetch: when, where and how often elements are made.

#include <array>
#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>

#include "core/base/threads.h"
#include "tests/data/testing.h"

namespace cohort::data {
namespace {

using Values = std::vector<int64_t>;

int64_t value_of(const Element& element) { return element["value"].values<int64_t>()[0]; }
Element with_value(int64_t value) { return Element{{"value", Tensor::scalar(value)}}; }
Element doubled(const Element& element) { return with_value(2 * value_of(element)); }
Element same(const Element& element) { return element; }

TEST(Map, AppliesTheFunctionToEachElement) {
  EXPECT_EQ(values(range(4).map(doubled)), (Values{0, 2, 4, 6}));
  expect_error([] { range(1).map(doubled, {.num_parallel = 0}); }, Code::kInvalidArgument,
               {"num_parallel is 0"});
}

TEST(Filter, KeepsWhatThePredicateHolds) {
  const auto even = [](const Element& e) { return value_of(e) % 2 == 0; };
  EXPECT_EQ(values(range(7).filter(even)), (Values{0, 2, 4, 6}));
  EXPECT_EQ(values(range(7).map(doubled).filter(even).batch(2)), (Values{0, 2, 4, 6, 8, 10, 12}));
}

TEST(Transformations, RefuseEmptyFunctions) {
  expect_error([] { range(1).map(nullptr); }, Code::kInvalidArgument, {"map()", "empty"});
  expect_error([] { range(1).filter(nullptr); }, Code::kInvalidArgument, {"filter()", "empty"});
  expect_error([] { range(1).take_while(nullptr); }, Code::kInvalidArgument, {"take_while()"});
  expect_error([] { range(1).interleave(nullptr); }, Code::kInvalidArgument, {"interleave()"});
  expect_error([] { generator(nullptr); }, Code::kInvalidArgument, {"generator()", "empty"});
  expect_error([] { values(generator([] { return NextFunction(); })); }, Code::kInvalidArgument,
               {"generator()", "its start returned an empty function"});
}

TEST(ParallelMap, KeepsTheOrder) {
  Values expected;
  for (int64_t i = 0; i < 1000; ++i) expected.push_back(2 * i);
  EXPECT_EQ(values(range(1000).map(doubled, {.num_parallel = 4})), expected);
  EXPECT_EQ(values(range(0).map(doubled, {.num_parallel = 4})), Values());
}

TEST(ParallelMap, RunsTheFunctionOnSeveralThreadsAtATime) {
  Level running;
  const auto wait_for_another = [&](const Element& e) {
    running.raise();
    EXPECT_TRUE(running.reaches(2));
    return e;
  };
  EXPECT_EQ(values(range(2).map(wait_for_another, {.num_parallel = 2})), count_up(0, 2));
}

TEST(ParallelMap, MayYieldInTheOrderOfCompletion) {
  Level taken;
  const auto first_is_slow = [&](const Element& e) {
    EXPECT_TRUE(value_of(e) != 0 || taken.reaches(2));
    return e;
  };
  Iterator iterator =
      range(3).map(first_is_slow, {.num_parallel = 2, .deterministic = false}).iterate();
  EXPECT_NE(value_of(*iterator.next()), 0);
  taken.raise();
  EXPECT_NE(value_of(*iterator.next()), 0);
  taken.raise();
  EXPECT_EQ(remaining(iterator), Values{0});
}

TEST(ParallelMap, DoesNotRunFarAheadOfASlowElement) {
  std::atomic<int> calls{0};
  Level release;
  const auto first_is_stuck = [&](const Element& e) {
    ++calls;
    EXPECT_TRUE(value_of(e) != 0 || release.reaches(1));
    return e;
  };
  Iterator iterator =
      range(1000).map(first_is_stuck, {.num_parallel = 2, .deterministic = false}).iterate();
  for (int i = 0; i < 3; ++i) iterator.next();
  EXPECT_LE(calls, 4);
  release.raise();
  EXPECT_EQ(remaining(iterator).size(), 997u);
}

Element fail_at_3(const Element& element) {
  if (value_of(element) == 3) invalid("element 3 is bad");
  return element;
}

bool always(const Element&) { return true; }

class ErrorsInThreads : public ::testing::TestWithParam<Dataset> {};
INSTANTIATE_TEST_SUITE_P(
    All, ErrorsInThreads,
    ::testing::Values(range(9).map(fail_at_3), range(9).map(fail_at_3, {.num_parallel = 3}),
                      range(9).map(fail_at_3).prefetch(2),
                      range(9).map(fail_at_3).map(same, {.num_parallel = 3}),
                      range(9).map(fail_at_3, {.num_parallel = 3}).batch(1).prefetch(9),
                      range(9).map(fail_at_3).padded_batch(1).prefetch(2),
                      range(9).map(fail_at_3).prefetch(2).batch(1).unbatch(),
                      range(9).map(fail_at_3, {.num_parallel = 3}).window(1),
                      range(9).map(fail_at_3).prefetch(2).take_while(always),
                      range(2).concatenate(range(9).skip(2).map(fail_at_3).prefetch(2)),
                      sample_from({range(9).map(fail_at_3, {.num_parallel = 3})}).prefetch(2)),
    [](const auto& info) { return str("Pipeline", info.index); });

TEST_P(ErrorsInThreads, AreThrownByNextAfterTheElementsBefore) {
  Iterator iterator = GetParam().iterate();
  for (int64_t i = 0; i < 3; ++i) EXPECT_EQ(value_of(*iterator.next()), i);
  expect_error([&] { iterator.next(); }, Code::kInvalidArgument, {"element 3 is bad"});
}

TEST(Map, SaysForWhichElementItsFunctionFails) {
  const auto fail_at_13 = [](const Element& e) {
    if (value_of(e) == 13) fail(Code::kDataLoss, "no ink");
    return e;
  };
  const auto after = [&](const Dataset& dataset, int64_t read) {
    Iterator saved = dataset.iterate();
    for (int64_t i = 0; i < read; ++i) saved.next();
    Iterator restored = dataset.iterate();
    if (read > 0) restored.restore(saved.save());
    return error_of([&] { remaining(restored); }).message();
  };
  const auto fails_at_13 = [&](const Element& e) { return value_of(fail_at_13(e)) >= 0; };
  const Dataset rows = range(20).skip(10);
  for (const int num_parallel : {1, 2}) {
    const Dataset mapped = rows.map(fail_at_13, {.num_parallel = num_parallel});
    EXPECT_EQ(after(mapped, 0), "map(): element 3: no ink");
    EXPECT_EQ(after(mapped, 2), "map(): element 1 from where it was restored: no ink");
  }
  EXPECT_EQ(after(rows.filter(fails_at_13), 0), "filter(): element 3: no ink");
  EXPECT_EQ(after(rows.take_while(fails_at_13), 0), "take_while(): element 3: no ink");
  EXPECT_EQ(after(rows.take_while(fails_at_13), 2),
            "take_while(): element 1 from where it was restored: no ink");
  EXPECT_EQ(after(rows.map(fail_at_13).skip(1).batch(2).prefetch(1), 0),
            "map(): element 3: no ink");
}

TEST(Prefetch, ThrowsWhatIsNoErrorWithEveryCall) {
  const auto fail = [](const Element&) -> Element { throw std::runtime_error("no ink"); };
  Iterator stream = range(9).map(fail).prefetch(2).iterate();
  for (int i = 0; i < 3; ++i) EXPECT_THROW(stream.next(), std::runtime_error);
}

TEST(Prefetch, YieldsTheSameElements) {
  EXPECT_EQ(values(range(100).prefetch(3)), count_up(0, 100));
  EXPECT_EQ(values(range(10).prefetch(1).prefetch(50).batch(3).prefetch(2)), count_up(0, 10));
  expect_error([] { range(5).prefetch(0); }, Code::kInvalidArgument, {"at least 1"});
}

TEST(Prefetch, ReadsAheadByItsCountAndNoFurther) {
  Level made;
  std::atomic<int> calls{0};
  const auto count = [&](const Element& e) {
    ++calls;
    made.raise();
    return e;
  };
  Iterator iterator = range(100).map(count).prefetch(5).iterate();
  EXPECT_EQ(calls, 0);
  iterator.next();
  EXPECT_TRUE(made.reaches(6));
  EXPECT_LE(calls, 6);
}

TEST(Prefetch, MakesElementsOnAThreadThatUsesOneCore) {
  std::thread::id thread;
  int threads = 0;
  const auto look = [&](const Element& e) {
    thread = std::this_thread::get_id();
    threads = num_threads();
    return e;
  };
  values(range(3).map(look).prefetch(1));
  EXPECT_NE(thread, std::this_thread::get_id());
  EXPECT_EQ(threads, 1);
}

TEST(Iterator, EndsItsThreadsWhereverTheyAre) {
  const Dataset endless = range(7).shuffle(7).repeat().map(doubled, {.num_parallel = 3});
  for (int taken = 0; taken < 20; ++taken) {
    Iterator iterator = endless.prefetch(2)
                            .map(same, {.num_parallel = 2, .deterministic = false})
                            .prefetch(4)
                            .iterate();
    for (int i = 0; i < taken; ++i) EXPECT_TRUE(iterator.next());
  }
}

// 0 to 9 in a first pass; then 10, 11, ..., each of which raises `further`, until `give_up`.
Dataset endless_from_the_second_pass(Level& further, std::atomic<bool>& give_up) {
  const auto passes = std::make_shared<std::atomic<int>>(0);
  return generator([&, passes] {
    const bool is_first = (*passes)++ == 0;
    return [&, is_first, next = int64_t{is_first ? 0 : 10}]() mutable -> std::optional<Element> {
      if (give_up || (is_first && next == 10)) return std::nullopt;
      if (!is_first) further.raise();
      return with_value(next++);
    };
  });
}

TEST(Iterator, EndsAThreadThatGathersElementsOrSearchesForOneInVain) {
  struct Case {
    std::string name;
    std::function<Dataset(const Dataset&)> transform;
  };
  constexpr int64_t kMore = int64_t{1} << 40;
  const auto is_early = [](const Element& e) { return value_of(e) < 10; };
  const auto nothing_late = [&](const Element& e) { return range(is_early(e) ? 1 : 0); };
  const std::vector<Case> cases = {
      {"filter", [&](const Dataset& d) { return d.filter(is_early); }},
      {"filter below a parallel map",
       [&](const Dataset& d) { return d.filter(is_early).map(same, {.num_parallel = 2}); }},
      {"shuffle", [](const Dataset& d) { return d.shuffle(kMore); }},
      {"batch", [](const Dataset& d) { return d.batch(kMore); }},
      {"shard", [](const Dataset& d) { return d.shard(kMore, 0); }},
      {"interleave", [&](const Dataset& d) { return d.interleave(nothing_late); }},
  };
  for (const auto& [name, transform] : cases) {
    SCOPED_TRACE(name);
    Level further;
    std::atomic<bool> give_up = false;
    std::optional<Iterator> iterator = transform(endless_from_the_second_pass(further, give_up))
                                           .repeat()
                                           .prefetch(20)
                                           .prefetch(20)
                                           .iterate();
    EXPECT_TRUE(iterator->next());
    EXPECT_TRUE(further.reaches(3));
    auto destroyed = std::async(std::launch::async, [&] { iterator.reset(); });
    EXPECT_EQ(destroyed.wait_for(std::chrono::seconds(10)), std::future_status::ready);
    give_up = true;
  }
}

TEST(Iterator, EndsTheThreadsBelowEveryTransformation) {
  const Dataset busy = range(7).repeat().map(doubled, {.num_parallel = 2}).prefetch(2).take(40);
  const std::vector<Dataset> datasets = {
      busy.concatenate(busy),    busy.padded_batch(3),         busy.batch(4).prefetch(2).unbatch(),
      sample_from({busy, busy}), busy.window(4, {.shift = 1}), busy.take_while(always)};
  for (const Dataset& dataset : datasets) {
    for (int taken = 0; taken < 20; ++taken) {
      Iterator iterator = dataset.prefetch(3).iterate();
      for (int i = 0; i < taken && iterator.next(); ++i) {
      }
    }
  }
}

TEST(Cache, ReadsItsInputOnce) {
  int calls = 0;
  const Dataset dataset =
      range(5).map([&](const Element& e) { return ++calls, doubled(e); }).cache();
  for (int pass = 0; pass < 3; ++pass) EXPECT_EQ(values(dataset), (Values{0, 2, 4, 6, 8}));
  EXPECT_EQ(values(dataset.repeat(2)).size(), 10u);
  EXPECT_EQ(calls, 5);
}

TEST(Cache, IgnoresIncompletePasses) {
  int calls = 0;
  const Dataset dataset = range(5).map([&](const Element& e) { return ++calls, e; }).cache();
  EXPECT_EQ(values(dataset.take(3)), count_up(0, 3));
  EXPECT_EQ(values(dataset), count_up(0, 5));
  EXPECT_EQ(calls, 8);
  EXPECT_EQ(values(dataset), count_up(0, 5));
  EXPECT_EQ(calls, 8);
}

TEST(Cache, FreezesTheOrderAboveItWhicheverPassFillsIt) {
  const auto make = [] { return range(50).shuffle(50).cache(); };
  const Dataset dataset = make();
  EXPECT_EQ(values(dataset, 3), values(dataset, 4));
  EXPECT_EQ(values(dataset, 3), values(make(), 0));
  EXPECT_NE(values(dataset.shuffle(50), 3), values(dataset.shuffle(50), 4));
}

TEST(Cache, HoldsElementsInTheirOrderWhateverMapMayDo) {
  EXPECT_EQ(values(in_order_of_completion(9).cache()), count_up(0, 9));
}

TEST(Cache, StartsAGeneratorOnlyForThePassesThatReadIt) {
  int starts = 0;
  const Dataset dataset = generator([&] {
                            ++starts;
                            return [next = int64_t{0}]() mutable -> std::optional<Element> {
                              if (next == 3) return std::nullopt;
                              return with_value(next++);
                            };
                          }).cache();
  Iterator begun_before = dataset.iterate();
  EXPECT_EQ(starts, 0);
  for (int pass = 0; pass < 3; ++pass) EXPECT_EQ(values(dataset), count_up(0, 3));
  EXPECT_EQ(remaining(begun_before), count_up(0, 3));
  EXPECT_EQ(starts, 1);
}

TEST(Cache, IsFilledInEitherPlaceOfAZip) {
  int calls = 0;
  const auto count = [&](const Element& e) { return ++calls, Element{{"other", e["value"]}}; };
  const auto calls_of_passes = [&](const Dataset& dataset) {
    calls = 0;
    for (int pass = 0; pass < 3; ++pass) EXPECT_EQ(values(dataset), count_up(0, 5));
    return calls;
  };
  const auto all = [](const Element&) { return true; };
  const Dataset five = range(5), other = five.map(count);
  EXPECT_EQ(calls_of_passes(zip(other.cache(), five)), 5);
  EXPECT_EQ(calls_of_passes(zip(five, other.cache())), 5);
  EXPECT_EQ(calls_of_passes(zip(five.filter(all), other.filter(all).cache().repeat(1))), 5);
  // What is longer would not be read to its end by that.
  EXPECT_EQ(calls_of_passes(zip(five, range(9).map(count).cache())), 15);
  EXPECT_EQ(calls_of_passes(zip(five, other.cache().repeat())), 15);
  EXPECT_EQ(calls_of_passes(zip(five, other)), 15);
}

TEST(Cache, KeepsNoPassThatHasThrown) {
  bool broken = true;
  const Dataset dataset = range(5)
                              .map([&](const Element& e) {
                                if (value_of(e) == 2 && std::exchange(broken, false))
                                  fail(Code::kUnavailable, "away");
                                return e;
                              })
                              .cache();
  Iterator iterator = dataset.iterate();
  EXPECT_TRUE(iterator.next() && iterator.next());
  expect_error([&] { iterator.next(); }, Code::kUnavailable, {"away"});
  EXPECT_EQ(remaining(iterator), (Values{3, 4}));
  EXPECT_FALSE(iterator.next());
  EXPECT_EQ(values(dataset), count_up(0, 5));
}

TEST(Cache, RefusesAnEndlessDataset) {
  expect_error([] { range(5).repeat().cache(); }, Code::kInvalidArgument, {"cache()", "endless"});
}

TEST(Cache, IsFilledByPassesOnSeveralThreads) {
  const Dataset dataset = range(200).map(doubled).cache();
  std::vector<std::jthread> threads;
  std::array<Values, 4> seen;
  for (Values& pass : seen) threads.emplace_back([&] { pass = values(dataset); });
  threads.clear();
  for (const Values& pass : seen) EXPECT_EQ(pass, values(dataset));
}

}  // namespace
}  // namespace cohort::data
