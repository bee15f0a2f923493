// An iterator that is restored from a saved position continues as the one that was saved would
// have.

#include <algorithm>
#include <map>

#include "core/data/distributed_sampler.h"
#include "core/data/files.h"
#include "core/data/synthetic.h"
#include "tests/data/testing.h"

namespace cohort::data {
namespace {

constexpr uint64_t kEpoch = 3;

int64_t value_of(const Element& element) { return element["value"].values<int64_t>()[0]; }
Element tripled(const Element& element) {
  return Element{{"value", Tensor::scalar(3 * value_of(element))}};
}
bool not_multiple_of_4(const Element& element) { return value_of(element) % 4 != 0; }
Dataset count_to_value(const Element& element) { return range(value_of(element) % 5).shuffle(3); }
Element renamed(const Element& element) { return Element{{"other", element["value"]}}; }

bool below_20(const Element& element) { return value_of(element) < 20; }
// A list of 0 to 3 elements.
Element listed(const Element& element) {
  const int64_t value = value_of(element);
  return Element{{"value", Tensor::full(DType::kInt64, {value % 4}, static_cast<double>(value))}};
}

Dataset from_generator(int64_t count) {
  return generator([count] {
    return [count, next = int64_t{0}]() mutable -> std::optional<Element> {
      if (next == count) return std::nullopt;
      return Element{{"value", Tensor::scalar(next++)}};
    };
  });
}

struct Pipeline {
  std::string name;
  std::function<Dataset()> make;  // made anew for each iterator: a restart is another process
};

std::ostream& operator<<(std::ostream& out, const Pipeline& pipeline) {
  return out << pipeline.name;
}

// Everything that an element is.
std::string print(const Element& element) {
  std::string out;
  for (const Field& field : element) out += field.name + "=" + to_string(field.tensor) + " ";
  return out;
}

std::vector<std::string> rest(Iterator& iterator) {
  std::vector<std::string> elements;
  while (const auto element = iterator.next()) elements.push_back(print(*element));
  return elements;
}

class Restart : public ::testing::TestWithParam<Pipeline> {};

INSTANTIATE_TEST_SUITE_P(
    All, Restart,
    ::testing::Values(
        Pipeline{"rows", [] { return range(20); }},
        Pipeline{"generator", [] { return from_generator(20).shuffle(6); }},
        Pipeline{"order", [] { return range(60).skip(3).shard(2, 1).take(25).skip(2); }},
        Pipeline{"repeat", [] { return range(7).filter(not_multiple_of_4).shuffle(3).repeat(4); }},
        Pipeline{"endless", [] { return range(5).shuffle(9).repeat().shuffle(7).take(60); }},
        Pipeline{"small_shuffle", [] { return range(200).shuffle(5); }},
        Pipeline{"large_shuffle", [] { return range(50).shuffle(1000); }},
        Pipeline{
            "two_shuffles",
            [] { return range(80).map(tripled).shuffle(9).filter(not_multiple_of_4).shuffle(20); }},
        Pipeline{"images", [] { return synthetic_digits(40).shuffle(20).batch(3); }},
        Pipeline{"batch", [] { return range(50).shuffle(16).map(tripled).batch(4).prefetch(3); }},
        Pipeline{"drop_remainder",
                 [] { return range(50).batch(4, {.drop_remainder = true}).repeat(2); }},
        Pipeline{"padded_batch",
                 [] { return range(40).shuffle(9).map(listed).padded_batch(3).repeat(2); }},
        Pipeline{
            "padded_batch_of_one_length",
            [] {
              return range(40).shuffle(9).map(listed).padded_batch(3, {.shapes = {{"value", {5}}}});
            }},
        Pipeline{
            "unbatch",
            [] {
              return range(20).shuffle(9).map(listed, {.num_parallel = 2}).unbatch().shuffle(5);
            }},
        Pipeline{"rebatch", [] { return range(50).shuffle(9).batch(7).unbatch().batch(4); }},
        Pipeline{"window",
                 [] { return range(30).shuffle(9).window(4, {.shift = 2, .stride = 2}); }},
        Pipeline{"windows_with_gaps",
                 [] {
                   return range(60)
                       .map(tripled, {.num_parallel = 2})
                       .window(2, {.shift = 5, .drop_remainder = true})
                       .shuffle(3);
                 }},
        Pipeline{"take_while",
                 [] { return range(60).take_while(below_20).shuffle(5).repeat(2).prefetch(2); }},
        Pipeline{"concatenate",
                 [] {
                   return from_generator(9)
                       .shuffle(4)
                       .concatenate(range(8).map(tripled).shuffle(5))
                       .concatenate(range(4).prefetch(2))
                       .repeat(2);
                 }},
        Pipeline{"sample_from",
                 [] {
                   return sample_from(
                       {range(20).shuffle(5), from_generator(9), range(5).map(tripled).repeat(2)},
                       {0.5, 0.2, 0.3});
                 }},
        Pipeline{"sample_from_until_one_is_empty",
                 [] {
                   return sample_from({range(6), range(50).shuffle(9)}, {1, 4},
                                      {.seed = 3, .stop_on_empty = true})
                       .repeat(2);
                 }},
        Pipeline{"cache", [] { return range(20).shuffle(20).cache().shuffle(5).repeat(3); }},
        Pipeline{
            "zip",
            [] { return zip(range(30).shuffle(9), range(25).repeat(2).map(renamed).shuffle(8)); }},
        Pipeline{"interleave",
                 [] {
                   return range(30).shuffle(8).interleave(count_to_value,
                                                          {.cycle_length = 3, .block_length = 2});
                 }},
        Pipeline{"files",
                 [] {
                   return from_files({"5", "3", "8", "1"},
                                     [](const std::string& path) {
                                       return range(std::stoi(path)).shuffle(4);
                                     },
                                     {.cycle_length = 2})
                       .batch(2)
                       .repeat(2);
                 }},
        Pipeline{
            "sampler",
            [] {
              const auto all = range(33).batch(33).iterate().next();
              return from_sampler(*all, {33, {.num_replicas = 3, .rank = 1}}).batch(2).repeat(2);
            }},
        Pipeline{
            "nested_interleave",
            [] {
              return range(4)
                  .interleave(
                      [](const Element&) {
                        return range(6).interleave(count_to_value, {.cycle_length = 2}).prefetch(2);
                      },
                      {.cycle_length = 3})
                  .shuffle(5);
            }},
        Pipeline{
            "prefetch",
            [] { return range(40).prefetch(3).shuffle(4).prefetch(10).filter(not_multiple_of_4); }},
        Pipeline{
            "parallel_map",
            [] { return range(60).shuffle(10).map(tripled, {.num_parallel = 3}).shuffle(10); }},
        Pipeline{"everything",
                 [] {
                   return zip(range(90)
                                  .shuffle(30)
                                  .repeat()
                                  .map(tripled, {.num_parallel = 2})
                                  .filter(not_multiple_of_4),
                              range(12)
                                  .interleave(count_to_value, {.cycle_length = 4})
                                  .map(renamed)
                                  .repeat(9))
                       .shuffle(11)
                       .batch(3)
                       .cache()
                       .repeat(2)
                       .shuffle(2)
                       .prefetch(2);
                 }}),
    [](const auto& info) { return info.param.name; });

TEST_P(Restart, AtAnyElementContinuesTheSequence) {
  Iterator uninterrupted = GetParam().make().iterate({.epoch = kEpoch});
  const std::vector<std::string> expected = rest(uninterrupted);
  ASSERT_GE(expected.size(), 10u);
  Iterator saved = GetParam().make().iterate({.epoch = kEpoch});
  for (size_t at = 0; at <= expected.size(); ++at) {
    const std::string position = saved.save();
    Iterator restored = GetParam().make().iterate();
    restored.restore(position);
    EXPECT_EQ(restored.epoch(), kEpoch);
    EXPECT_EQ(restored.save(), position);
    EXPECT_EQ(rest(restored), std::vector<std::string>(expected.begin() + at, expected.end()))
        << "restored at element " << at << " from " << position;
    saved.next();
  }
}

TEST_P(Restart, AfterEachElementGivesTheWholeSequence) {
  Iterator uninterrupted = GetParam().make().iterate({.epoch = kEpoch});
  std::vector<std::string> elements;
  std::string position = GetParam().make().iterate({.epoch = kEpoch}).save();
  while (true) {
    Iterator iterator = GetParam().make().iterate();
    iterator.restore(position);
    const auto element = iterator.next();
    if (!element) break;
    elements.push_back(print(*element));
    position = iterator.save();
  }
  EXPECT_EQ(elements, rest(uninterrupted));
}

TEST(RestartOfUnorderedMap, NeitherLosesNorRepeatsElements) {
  const auto make = [] {
    return range(50).map(tripled, {.num_parallel = 3, .deterministic = false});
  };
  std::vector<int64_t> seen;
  std::string position = make().iterate({.epoch = 0}).save();
  for (int round = 0; round < 25; ++round) {
    Iterator iterator = make().iterate();
    iterator.restore(position);
    for (int i = 0; i < 2; ++i) seen.push_back(value_of(*iterator.next()));
    position = iterator.save();
  }
  std::sort(seen.begin(), seen.end());
  for (int64_t i = 0; i < 50; ++i) EXPECT_EQ(seen[i], 3 * i);
}

// The others of such a map remember what has come out of turn.
TEST(RestartOfUnorderedMap, NeedsThreads) {
  const auto late = std::make_shared<Level>();
  const auto make = [late](const MapOptions& options) {
    return range(9).map(
        [late](const Element& e) {
          EXPECT_TRUE(value_of(e) > 0 || late->reaches(1));
          return e;
        },
        options);
  };
  Iterator iterator = make({.num_parallel = 2, .deterministic = false}).iterate();
  EXPECT_EQ(value_of(*iterator.next()), 1);
  const std::string position = iterator.save();
  late->raise();
  Iterator ordered = make({.num_parallel = 2}).iterate();
  ordered.restore(position);
  EXPECT_EQ(remaining(ordered), (std::vector<int64_t>{0, 2, 3, 4, 5, 6, 7, 8}));
  expect_error([&] { make({}).iterate().restore(position); }, Code::kFailedPrecondition,
               {"deterministic = false", "num_parallel = 1"});
}

// What reads elements again takes them to have the numbers that they had.
TEST(RestartOfUnorderedMap, IsRefusedBelowWhatReadsElementsAgain) {
  const Dataset unordered = range(50).map(tripled, {.num_parallel = 3, .deterministic = false});
  const auto alone = [](const Element& e) { return from_tensor_slices(e).batch(1); };
  const std::map<std::string, Dataset> above = {
      {"shuffle", unordered.shuffle(10).prefetch(2)},
      {"unbatch", unordered.batch(2).unbatch()},
      {"window", unordered.window(3, {.shift = 1})},
      {"interleave", unordered.batch(1).interleave(alone, {.cycle_length = 2})}};
  for (const auto& [kind, dataset] : above) {
    Iterator iterator = dataset.iterate();
    iterator.next();
    const Error error = error_of([&] { iterator.save(); });
    EXPECT_EQ(error.code(), Code::kFailedPrecondition);
    const std::string text = error.what();
    EXPECT_NE(text.find("\"" + kind + "\""), std::string::npos) << text;
    EXPECT_NE(text.find(".deterministic = false"), std::string::npos) << text;
    while (iterator.next()) {
    }
  }
  EXPECT_NO_THROW(range(9).map(tripled, {.deterministic = false}).shuffle(3).iterate().save());
}

TEST(RestartOfUnorderedMap, IsOfAnOrderedOneBelowACache) {
  const auto make = [] { return in_order_of_completion(20).cache(); };
  for (const Dataset& dataset : {make(), make().shuffle(5), make().batch(2).unbatch()}) {
    Iterator saved = dataset.iterate({.epoch = 0});
    for (int i = 0; i < 7; ++i) saved.next();
    Iterator restored = dataset.iterate();
    restored.restore(saved.save());
    EXPECT_EQ(remaining(restored), remaining(saved));
  }
}

// Of what a function makes that cannot be seen before, so it is not done there.
TEST(RestartOfUnorderedMap, IsOfAnOrderedOneInDatasetsThatFunctionsMake) {
  const auto open = [](const Element&) { return in_order_of_completion(9); };
  const auto read = [](const std::string& path) { return in_order_of_completion(std::stoi(path)); };
  for (const Dataset& dataset : {range(1).interleave(open), from_files({"9"}, read)}) {
    EXPECT_EQ(values(dataset.shuffle(1)), count_up(0, 9));
    EXPECT_EQ(values(dataset.interleave([](const Element& e) {
                return from_tensor_slices({{"value", Tensor::from<int64_t>({value_of(e)}, {1})}});
              })),
              count_up(0, 9));
    Iterator iterator = dataset.shuffle(3).iterate();
    iterator.next();
    EXPECT_NO_THROW(iterator.save());
  }
}

TEST(RestartOfShuffle, MakesOnlyTheElementsThatAreStillToCome) {
  int calls = 0;
  const Dataset dataset = range(1000).map([&](const Element& e) { return ++calls, e; }).shuffle(10);
  Iterator iterator = dataset.iterate();
  for (int i = 0; i < 900; ++i) iterator.next();
  const std::string position = iterator.save();
  calls = 0;
  iterator.restore(position);
  EXPECT_LE(calls, 10);
}

TEST(RestartOfShuffle, OfAnEndlessInputDoesNotReadItsWholePast) {
  int calls = 0;
  const auto count = [&](const Element&) { return ++calls, true; };
  const Dataset dataset = range(10).filter(count).repeat().shuffle(10);
  Iterator iterator = dataset.iterate();
  for (int i = 0; i < 5000; ++i) iterator.next();
  const std::string position = iterator.save();
  EXPECT_LT(position.size(), 200u);
  calls = 0;
  iterator.restore(position);
  EXPECT_LT(calls, 500);
}

TEST(RestartOfShuffle, RefusesAnotherBuffer) {
  const std::string position = range(9).shuffle(3).iterate().save();
  expect_error([&] { range(9).shuffle(4).iterate().restore(position); }, Code::kFailedPrecondition,
               {"shuffle(3)", "shuffle(4)"});
}

TEST(RestartOfShuffle, RefusesAnotherOrder) {
  const auto shuffled = [](uint64_t seed) { return range(9).shuffle(3, {.seed = seed}); };
  Iterator iterator = shuffled(1).iterate({.epoch = 4});
  iterator.next();
  const std::string position = iterator.save();
  EXPECT_NO_THROW(shuffled(1).iterate({.epoch = 5}).restore(position)) << "it has its epoch";
  expect_error([&] { shuffled(2).iterate({.epoch = 4}).restore(position); },
               Code::kFailedPrecondition, {"another seed of shuffle(3)"});
}

TEST(RestartOfShard, RefusesAnotherShard) {
  Iterator iterator = range(9).shard(2, 1).iterate();
  iterator.next();
  const std::string position = iterator.save();
  expect_error([&] { range(9).shard(2, 0).iterate().restore(position); }, Code::kFailedPrecondition,
               {"shard(2, 1)", "shard(2, 0)"});
  expect_error([&] { range(9).shard(3, 1).iterate().restore(position); }, Code::kFailedPrecondition,
               {"shard(2, 1)", "shard(3, 1)"});
}

TEST(RestartOfWindow, RefusesOtherSizes) {
  Iterator iterator = range(9).window(3, {.shift = 2}).iterate();
  iterator.next();
  const std::string position = iterator.save();
  const auto refused = [&](const Dataset& dataset, const std::string& text) {
    expect_error([&] { dataset.iterate().restore(position); }, Code::kFailedPrecondition,
                 {"window(3), shift 2 and stride 1", text});
  };
  refused(range(9).window(4, {.shift = 2}), "window(4)");
  refused(range(9).window(3), "shift 3");
  refused(range(9).window(3, {.shift = 2, .stride = 2}), "stride 2");
}

TEST(RestartOfSampleFrom, RefusesAnotherSeedAndOtherWeights) {
  const auto sampled = [](uint64_t seed, double weight) {
    return sample_from({range(9), range(9)}, {1, weight}, {.seed = seed});
  };
  Iterator iterator = sampled(1, 2).iterate();
  iterator.next();
  const std::string position = iterator.save();
  EXPECT_NO_THROW(sampled(1, 2).iterate().restore(position));
  for (const Dataset& other : {sampled(2, 2), sampled(1, 3)})
    expect_error([&] { other.iterate().restore(position); }, Code::kFailedPrecondition,
                 {"another seed or other weights of sample_from()"});
}

// What is read again is what the next elements are made of, not all that came before.
TEST(RestartOfWindow, ReadsFromTheStartOfTheNextOne) {
  int calls = 0;
  const Dataset dataset =
      range(1000).map([&](const Element& e) { return ++calls, e; }).window(10, {.shift = 1});
  Iterator iterator = dataset.iterate();
  for (int i = 0; i < 500; ++i) iterator.next();
  const std::string position = iterator.save();
  calls = 0;
  iterator.restore(position);
  EXPECT_EQ(value_of(*iterator.next()), 500);
  EXPECT_EQ(calls, 10);
}

TEST(RestartOfRepeat, RefusesAnotherCount) {
  Iterator iterator = range(3).repeat().iterate();
  for (int i = 0; i < 7; ++i) iterator.next();
  const std::string position = iterator.save();
  for (const int64_t count : {1, 2, 5})
    expect_error([&] { range(3).repeat(count).iterate().restore(position); },
                 Code::kFailedPrecondition, {"repeat(-1)", str("repeat(", count, ")")});
}

TEST(Restore, RefusesThePositionOfAnotherPipeline) {
  const std::string position = range(9).shuffle(3).batch(2).iterate().save();
  expect_error([&] { range(9).batch(2).iterate().restore(position); }, Code::kFailedPrecondition,
               {"\"shuffle\"", "\"rows\""});
  expect_error([&] { range(8).shuffle(3).batch(2).iterate().restore(position); },
               Code::kFailedPrecondition, {"9 rows", "8"});
}

TEST(Restore, RefusesThePositionOfOtherArguments) {
  const auto refused = [](const Dataset& saved, const Dataset& other,
                          const std::vector<std::string>& texts) {
    Iterator iterator = saved.iterate();
    iterator.next();
    const std::string position = iterator.save();
    EXPECT_NO_THROW(saved.iterate().restore(position));
    expect_error([&] { other.iterate().restore(position); }, Code::kFailedPrecondition, texts);
  };
  refused(range(99).skip(10), range(99).skip(50), {"skip(10)", "skip(50)"});
  refused(range(99).take(20), range(99).take(30), {"take(20)", "take(30)"});
  const auto interleaved = [](const InterleaveOptions& options) {
    return range(9).interleave(count_to_value, options);
  };
  refused(interleaved({.cycle_length = 3}), interleaved({.cycle_length = 2}),
          {"cycle_length 3", "has 2"});
  refused(interleaved({.block_length = 4}), interleaved({.block_length = 2}),
          {"block_length 4", "has 1 and 2"});
}

// It is elements that are counted.
TEST(Restore, ContinuesInBatchesOfAnotherSize) {
  Iterator five = range(20).batch(5).iterate();
  five.next();
  Iterator seven = range(20).batch(7).iterate();
  seven.restore(five.save());
  EXPECT_EQ(seven.next()->rows(), 7);
  EXPECT_EQ(remaining(seven), count_up(12, 20));
}

TEST(Restore, RefusesPositionsOfTheFirstVersion) {
  expect_error([] { range(9).iterate().restore(R"(["iterator",[0],["rows",[1,9]]])"); },
               Code::kFailedPrecondition, {"older version", "without a checksum"});
}

TEST(Restore, IsFollowedByTheNextPass) {
  const auto make = [] { return range(20).shuffle(20, {.seed = 2}); };
  const Dataset uninterrupted = make(), restarted = make();
  for (int pass = 0; pass < 2; ++pass) uninterrupted.iterate();
  Iterator saved = uninterrupted.iterate();
  saved.next();
  Iterator restored = restarted.iterate();
  restored.restore(saved.save());
  Iterator expected = uninterrupted.iterate(), next = restarted.iterate();
  EXPECT_EQ(next.epoch(), 3u);
  EXPECT_EQ(remaining(next), remaining(expected));

  restored.restore(make().iterate({.epoch = 1}).save());
  EXPECT_EQ(restarted.iterate().epoch(), 4u) << "an earlier one takes nothing back";
  restarted.iterate({.epoch = 0}).restore(make().iterate({.epoch = 9}).save());
  EXPECT_EQ(restarted.iterate().epoch(), 5u) << "what has an epoch of its own is not counted";
}

TEST(Restore, LeavesTheIteratorAsItWasWhenItFails) {
  Iterator iterator = range(9).shuffle(3).iterate({.epoch = 0});
  iterator.next();
  const std::string before = iterator.save();
  expect_error([&] { iterator.restore("nonsense"); }, Code::kDataLoss, {"not the saved position"});
  expect_error([&] { iterator.restore(range(9).iterate().save()); }, Code::kFailedPrecondition, {});
  EXPECT_EQ(iterator.save(), before);
}

TEST(Restore, RefusesDamagedPositions) {
  const Dataset dataset =
      sample_from(
          {zip(range(10).shuffle(9), from_generator(8).map(renamed))
               .interleave([](const Element&) { return range(4).repeat(2); }, {.cycle_length = 2}),
           range(9).batch(3).unbatch().take_while(below_20).concatenate(range(3))})
          .window(3, {.shift = 2})
          .prefetch(2);
  Iterator iterator = dataset.iterate();
  for (int i = 0; i < 7; ++i) iterator.next();
  const std::string position = iterator.save();
  for (size_t size = 0; size < position.size(); ++size)
    expect_error([&] { dataset.iterate().restore(position.substr(0, size)); }, Code::kDataLoss,
                 {"position"});
  for (size_t at = 0; at < position.size(); ++at) {
    for (const char replacement : {'0', '9', '-', '"', '.'}) {
      if (position[at] == replacement) continue;
      std::string damaged = position;
      damaged[at] = replacement;
      SCOPED_TRACE(damaged);
      expect_error([&] { dataset.iterate().restore(damaged); }, Code::kDataLoss, {"position"});
    }
  }
  const std::string deep = std::string(100'000, '[') + std::string(100'000, ']');
  expect_error([&] { dataset.iterate().restore(deep); }, Code::kDataLoss, {"position"});
  expect_error([&] { dataset.iterate().restore("[1," + deep + "]"); }, Code::kDataLoss,
               {"position"});
}

}  // namespace
}  // namespace cohort::data
