// Iterators of distributed datasets that go on at a saved position.

#include "tests/data/worker.h"

namespace cohort::data {
namespace {

struct Restarted {
  std::string name;
  std::function<DistributedDataset(int64_t prefetch)> make;
};

std::vector<Restarted> restarted() {
  const Dataset dataset = range(40).shuffle(9, {.seed = 2}).batch(6).repeat(2);
  return {
      {"one pipeline",
       [=](int64_t p) { return Worker(4).distribute_dataset(dataset, {.prefetch = p}); }},
      {"the second of three",
       [=](int64_t p) { return Worker(2, 3, 1).distribute_dataset(dataset, {.prefetch = p}); }},
      {"rows of generated batches",
       [=](int64_t p) {
         return Worker(2, 2, 1).distribute_dataset(batches_from_a_generator({5, 7, 6, 3}),
                                                   {.prefetch = p});
       }},
      {"rows of padded batches",
       [=](int64_t p) {
         return Worker(2, 2, 1).distribute_dataset(
             lists(23).shuffle(5, {.seed = 2}).padded_batch(4), {.prefetch = p});
       }},
      {"concatenated batches",
       [=](int64_t p) {
         return Worker(2, 3, 1).distribute_dataset(dataset.concatenate(range(13).batch(6)),
                                                   {.prefetch = p});
       }},
      {"from a function",
       [=](int64_t p) {
         return Worker(3).distribute_datasets_from_function(
             [&](const InputContext&) { return dataset; }, {.prefetch = p});
       }},
  };
}

TEST(DistributedIterator, ContinuesWhereItWasSaved) {
  for (const auto& [name, make] : restarted()) {
    for (const int64_t prefetch : {0, 1, 3}) {
      SCOPED_TRACE(str(name, ", prefetch ", prefetch));
      const Steps expected = steps(make(0), 5);
      ASSERT_GE(expected.size(), 4u);
      DistributedIterator saved = make(prefetch).iterate({.epoch = 5});
      for (size_t at = 0; at <= expected.size(); ++at) {
        const std::string position = saved.save();
        DistributedIterator restored = make(prefetch).iterate();
        restored.restore(position);
        EXPECT_EQ(restored.epoch(), 5u);
        EXPECT_EQ(restored.save(), position);
        EXPECT_EQ(rest(restored), Steps(expected.begin() + at, expected.end()))
            << "restored at step " << at << " from " << position;
        saved.next();
      }
    }
  }
}

TEST(DistributedIterator, IsFollowedByTheNextPassWhereItWasRestored) {
  const Dataset dataset = range(20).shuffle(20, {.seed = 2}).batch(4);
  Worker saver(2), restorer(2);
  const std::string position = saver.distribute_dataset(dataset).iterate({.epoch = 2}).save();
  const DistributedDataset batches = restorer.distribute_dataset(dataset);
  DistributedIterator restored = batches.iterate();
  restored.restore(position);
  EXPECT_EQ(batches.iterate().epoch(), 3u);
  EXPECT_EQ(dataset.iterate().epoch(), 4u) << "whose passes these are";
}

TEST(DistributedIterator, ContinuesWithAnotherNumberOfReplicas) {
  const Dataset dataset = range(12).shuffle(12).batch(4);
  DistributedIterator two = Worker(2).distribute_dataset(dataset).iterate({.epoch = 1});
  two.next();
  Iterator plain = dataset.iterate();
  plain.restore(two.save());
  const Values all = values(dataset, 1);
  EXPECT_EQ(remaining(plain), Values(all.begin() + 4, all.end()));
  DistributedIterator three = Worker(3).distribute_dataset(dataset).iterate();
  three.restore(two.save());
  EXPECT_EQ(rest(three).size(), 2u);
}

TEST(DistributedIterator, RefusesThePositionOfAnotherSizeOfBatches) {
  const auto iterate = [](int64_t batch) {
    return Worker(1, 2, 1).distribute_dataset(range(24).batch(batch)).iterate();
  };
  DistributedIterator six = iterate(6);
  six.next();
  const std::string position = six.save();
  DistributedIterator same = iterate(6);
  same.restore(position);
  EXPECT_EQ(rest(same), rest(six));
  expect_error([&] { iterate(4).restore(position); }, Code::kFailedPrecondition,
               {"saved with batch(6)", "has batch(4)"});
}

TEST(DistributedIterator, RefusesWhatIsNoPositionOfIt) {
  DistributedIterator iterator = Worker(2).distribute_dataset(range(9).batch(2)).iterate();
  expect_error([&] { iterator.restore("nonsense"); }, Code::kDataLoss, {"position"});
  const std::string other = range(9).shuffle(2).batch(2).iterate().save();
  expect_error([&] { iterator.restore(other); }, Code::kFailedPrecondition, {"shuffle"});
  EXPECT_EQ(rest(iterator).size(), 5u) << "it is as it was";
}

}  // namespace
}  // namespace cohort::data
