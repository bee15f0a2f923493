// Workers that divide one dataset have it in one order, wherever that decides who reads what.
#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "core/base/random.h"
#include "tests/train/multi_worker_testing.h"

namespace cohort::testing {
namespace {

using data::Dataset;
using data::Element;
using data::range;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using Worker = MultiWorkerMirroredStrategy;

bool is_any(const Element&) { return true; }

Dataset four(const Element&) { return range(4); }

Dataset lists(int64_t count) {
  return range(count).map([](const Element& e) {
    const auto length = 1 + static_cast<int64_t>(e["value"].item()) % 3;
    return Element{{"value", Tensor::full(DType::kInt64, {length}, 1)}};
  });
}

// Files of as many rows as their names say, which are numbers.
Dataset files(const std::vector<std::string>& names) {
  return data::from_files(names, [](const std::string& name) { return range(std::stoll(name)); });
}

Dataset sampled(uint64_t rank, uint64_t seed) {
  const Tensor x = Tensor::full(DType::kFloat32, {16}, 1);
  return data::from_sampler({{"x", x}},
                            {16, {.num_replicas = 2, .rank = int64_t(rank), .seed = seed}});
}

// What each of two workers throws, of which `make` gives each its dataset.
std::vector<std::string> errors_of(const std::function<Dataset(uint64_t rank)>& make,
                                   const InputOptions& options = {}) {
  return on_workers(2, [&](Worker& worker) {
    worker.distribute_dataset(make(static_cast<uint64_t>(worker.workers().rank())), options);
    worker.workers().exchange("what follows", "");
  });
}

struct Refused {
  std::function<Dataset(uint64_t rank)> make;
  std::string said;
  InputOptions options = {};
};

TEST(MultiWorkerOrder, OfWhatIsDividedHasToBeTheSameOnAll) {
  const InputOptions by_file{.auto_shard = AutoShardPolicy::kFile};
  const std::vector<Refused> all = {
      {[](uint64_t rank) {
         return files({"4", "4"}).batch(2).shard(2, int64_t(rank));
       },
       "worker:0 has shard(2, 0) where worker:1 has shard(2, 1)", by_file},
      {[](uint64_t rank) {
         return files({"4", "4"}).repeat(1 + int64_t(rank)).batch(2);
       },
       "worker:0 has nothing where worker:1 has repeat(2)", by_file},
      {[](uint64_t rank) { return range(64).shuffle(64, {.seed = 7 + rank}).take(32).batch(8); },
       "shuffle(64) draws by the seed 7 on worker:0 and by the seed 8 on worker:1"},
      {[](uint64_t rank) { return range(64).shuffle(9, {.seed = rank}).filter(is_any).batch(8); },
       "shuffle(9) draws by the seed 0 on worker:0 and by the seed 1 on worker:1"},
      {[](uint64_t rank) { return lists(64).shuffle(9, {.seed = rank}).padded_batch(8); },
       "shuffle(9) draws by the seed 0"},
      {[](uint64_t rank) { return range(64).shuffle(9, {.seed = rank}).batch(8); },
       "shuffle(9) draws by the seed 0", InputOptions{.keep_order = true}},
      {[](uint64_t rank) {
         return range(64).shuffle(8 + int64_t(rank), {.seed = 7}).take(32).batch(8);
       },
       "worker:0 has shuffle(8) where worker:1 has shuffle(9)"},
      {[](uint64_t rank) {
         const data::ShuffleOptions options{.seed = 7, .reshuffle_each_iteration = rank == 0};
         return range(64).shuffle(8, options).take(32).batch(8);
       },
       "worker:0 has shuffle(8) where worker:1 has shuffle(8, {.reshuffle_each_iteration = "
       "false})"},
      {[](uint64_t rank) {
         return data::sample_from({range(9), range(9)}, {}, {.seed = rank}).batch(3);
       },
       "sample_from() of 2 datasets with the weights 1, 1 draws by the seed 0 on worker:0"},
      {[](uint64_t rank) {
         const double weight = 1 + static_cast<double>(rank);
         return data::sample_from({range(9), range(9)}, {1, weight}, {.seed = 1}).batch(3);
       },
       "with the weights 1, 1 where worker:1 has sample_from() of 2 datasets with the weights 1, "
       "2"},
      {[](uint64_t rank) { return sampled(rank, 3 + rank).batch(4); },
       "from_sampler() of 16 rows for 2 ranks draws by the seed 3 on worker:0 and by the seed 4"},
      {[](uint64_t rank) { return range(64).shard(2, int64_t(rank)).batch(8); },
       "worker:0 has shard(2, 0) where worker:1 has shard(2, 1)"},
      {[](uint64_t rank) { return range(64).batch(8).shard(2, int64_t(rank)); },
       "worker:0 has shard(2, 0) where worker:1 has shard(2, 1)"},
      {[](uint64_t rank) { return range(64).filter(is_any).skip(2 + int64_t(rank)).batch(8); },
       "worker:0 has skip(2) where worker:1 has skip(3)"},
      {[](uint64_t rank) { return range(64).filter(is_any).batch(8).take(2 + int64_t(rank)); },
       "worker:0 has take(2) where worker:1 has take(3)"},
      {[](uint64_t rank) { return range(64).filter(is_any).repeat(2 + int64_t(rank)).batch(8); },
       "worker:0 has repeat(2) where worker:1 has repeat(3)"},
      {[](uint64_t rank) {
         const data::InterleaveOptions options{.cycle_length = 1 + int64_t(rank)};
         return range(4).interleave(four, options).batch(4);
       },
       "worker:0 has interleave() with cycle_length 1 and block_length 1 where worker:1 has "
       "interleave() with cycle_length 2 and block_length 1"},
      {[](uint64_t rank) {
         const Dataset few = range(9), many = range(30);
         return (rank == 0 ? few.concatenate(many) : many.concatenate(few)).batch(4);
       },
       "worker:0 has a source of 9 rows where worker:1 has a source of 30 rows"},
      {[](uint64_t rank) {
         return range(64).batch(4 + int64_t(rank)).shuffle(4, {.seed = 1}).unbatch().batch(8);
       },
       "worker:0 has batch(4) where worker:1 has batch(5)"},
      {[](uint64_t rank) {
         const Dataset rows = files({"4", "6"});
         return (rank == 0 ? rows : rows.take(10)).batch(2);
       },
       "worker:0 has a division by file where worker:1 has from_files()"}};
  for (const Refused& refused : all) {
    const auto errors = errors_of(refused.make, refused.options);
    EXPECT_THAT(
        errors,
        Each(AllOf(HasSubstr("FAILED_PRECONDITION"), HasSubstr(refused.said),
                   HasSubstr("shard(2, rank), with AutoShardPolicy::kOff and as many for each"),
                   HasSubstr("(peer worker:1)"))));
    EXPECT_EQ(errors[0], errors[1]);
  }
}

TEST(MultiWorkerOrder, SharesOfOtherRanksAreNotDividedAsOne) {
  const auto divided = [](const std::function<Dataset(uint64_t rank)>& make) {
    return errors_of(make, {.auto_shard = AutoShardPolicy::kData});
  };
  EXPECT_THAT(divided([](uint64_t rank) { return sampled(rank, 3).batch(4); }),
              Each(AllOf(HasSubstr("FAILED_PRECONDITION"),
                         HasSubstr("gives worker:0 the rows of rank 0 of 2 and worker:1 those of "
                                   "rank 1 of 2: AutoShardPolicy::kAuto leaves"),
                         HasSubstr("(peer worker:1)"))));
  EXPECT_THAT(divided([](uint64_t) { return sampled(1, 3).batch(4); }), Each(""));
}

// As that of a process which takes it from its rank or the time.
TEST(MultiWorkerOrder, FollowsTheGlobalSeedWhereAShuffleHasNone) {
  const uint64_t before = global_seed();
  const auto under_seed = [](uint64_t seed) {
    set_global_seed(seed);
    return range(64).shuffle(64);
  };
  const std::vector<Dataset> shuffled = {under_seed(1), under_seed(2)};
  set_global_seed(before);
  EXPECT_THAT(errors_of([&](uint64_t rank) { return shuffled[rank].take(32).batch(8); }),
              Each(HasSubstr("shuffle(64) draws by the global seed 1 as number 0 of those without "
                             "a seed on worker:0 and by the global seed 2 as number 0")));
  EXPECT_THAT(errors_of([&](uint64_t rank) { return shuffled[rank].batch(8); }), Each(""));
}

TEST(MultiWorkerOrder, OfAnotherSeedIsRefusedByFitAndAnyWorkerOfThree) {
  const auto errors = on_workers(3, [](Worker& worker) {
    const auto scope = worker.scope();
    const uint64_t seed = worker.workers().rank() == 2 ? 5 : 4;
    classifier().fit(points(12).shuffle(12, {.seed = seed}).take(6).batch(3), quietly({}, 1));
  });
  EXPECT_THAT(errors, Each(AllOf(HasSubstr("shuffle(12) draws by the seed 4 on worker:0 and by the "
                                           "seed 5 on worker:2"),
                                 HasSubstr("(peer worker:2)"))));
}

struct Allowed {
  std::string name;
  std::function<Dataset(int64_t rank)> make;
  int64_t elements;  // that all workers read together
  InputOptions options = {};
};

// Each element is read by one worker alone.
TEST(MultiWorkerOrder, IsEachWorkersOwnWhereItReadsAPartOfItsOwn) {
  const auto seed = [](int64_t rank) { return static_cast<uint64_t>(rank); };
  const std::vector<Allowed> all = {
      {"shuffled behind the division",
       [&](int64_t rank) { return range(64).shuffle(16 + rank, {.seed = seed(rank)}).batch(8); },
       64},
      {"batches shuffled behind the division",
       [&](int64_t rank) { return range(64).batch(8).shuffle(8, {.seed = seed(rank)}); }, 64},
      {"shared out by the program",
       [&](int64_t rank) {
         return range(64).shard(2, rank).shuffle(32, {.seed = seed(rank)}).take(16).batch(8);
       },
       32, InputOptions{.auto_shard = AutoShardPolicy::kOff}},
      {"without seeds below take()",
       [](int64_t) { return range(64).shuffle(64).take(32).batch(8); }, 32},
      {"of one seed below skip()",
       [](int64_t) { return range(64).shuffle(64, {.seed = 3}).skip(32).batch(8); }, 32},
      {"read and made otherwise",
       [](int64_t rank) {
         const auto same = [rank](const Element& e) { return rank == 0 ? e : Element(e); };
         const Dataset rows = range(64).map(same, {.num_parallel = 1 + int(rank)}).take(40);
         return (rank == 0 ? rows : rows.prefetch(2)).batch(8);
       },
       40},
      {"where a count changes nothing",
       [](int64_t rank) {
         const Dataset rows = range(64).take(40);
         return (rank == 0 ? rows : rows.skip(0).repeat(1).shard(1, 0)).batch(8);
       },
       40},
      {"stacked otherwise for a while",
       [](int64_t rank) { return range(64).batch(4 + rank).unbatch().take(40).batch(8); }, 40}};
  for (const Allowed& allowed : all) {
    Found<std::vector<int64_t>> found;
    on_good_workers(2, [&](Worker& worker) {
      const Dataset dataset = allowed.make(worker.workers().rank());
      std::vector<int64_t> own;
      for (const auto& batch : worker.distribute_dataset(dataset, allowed.options)) {
        const auto values = batch[0]["value"].values<int64_t>();
        own.insert(own.end(), values.begin(), values.end());
      }
      found.set(worker, own);
    });
    std::vector<int64_t> read;
    for (const auto& [rank, own] : found.values()) read.insert(read.end(), own.begin(), own.end());
    std::sort(read.begin(), read.end());
    EXPECT_EQ(std::adjacent_find(read.begin(), read.end()), read.end()) << allowed.name;
    EXPECT_EQ(static_cast<int64_t>(read.size()), allowed.elements) << allowed.name;
  }
}

TEST(MultiWorkerOrder, OfFilesIsEachWorkersOwn) {
  const auto errors = errors_of([](uint64_t rank) {
    return files({"4", "6"}).shuffle(8 + int64_t(rank), {.seed = rank}).filter(is_any).batch(2);
  });
  EXPECT_THAT(errors, Each(""));
}

TEST(MultiWorkerOrder, IsEachWorkersOwnInDatasetsOfAFunction) {
  on_good_workers(2, [](Worker& worker) {
    worker.distribute_datasets_from_function([](const InputContext& in) {
      const auto index = in.input_pipeline_id;
      return range(64).shard(2, index).shuffle(9, {.seed = uint64_t(index)}).take(8).batch(4);
    });
  });
}

}  // namespace
}  // namespace cohort::testing
