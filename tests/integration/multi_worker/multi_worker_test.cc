// Workers as the processes of a job, started by cohort-run: they train together, lose each other,
// and go on.
#include <atomic>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <set>
#include <thread>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/error.h"
#include "core/base/random.h"
#include "core/base/temporary_folder.h"
#include "core/train/safetensors.h"
#include "tests/strategies/cluster/launcher/launched.h"
#include "tests/testing/certificates.h"
#include "tests/testing/eventually.h"
#include "tests/testing/trials.h"

namespace cohort::testing {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

struct Job {
  int workers = 2;
  std::vector<std::string> flags = {};  // of the trainer
  int restarts = 0;
  std::map<std::string, std::string> environment = {};
};

Launch launch_of(const Job& job) {
  std::map<std::string, std::string> environment = job.environment;
  environment["OMP_NUM_THREADS"] = "1";
  return {.flags = {"--workers=" + std::to_string(job.workers),
                    "--restarts=" + std::to_string(job.restarts), "--grace=20", "--standalone"},
          .actions = job.flags,
          .environment = std::move(environment),
          .program = std::getenv("TRAINER")};
}

// What task `rank` has printed as NAME=VALUE, last.
std::string said(const Finished& run, int rank, const std::string& name) {
  const auto values = lines_of(run.output, "[worker:" + std::to_string(rank) + "] " + name + "=");
  return values.empty() ? "nothing" : values.back();
}

// What all workers have printed.
std::string common(const Finished& run, int workers, const std::string& name) {
  std::set<std::string> values;
  for (int rank = 0; rank < workers; ++rank) values.insert(said(run, rank, name));
  EXPECT_EQ(values.size(), 1u) << name << " differs\n" << run.output << run.errors;
  return *values.begin();
}

std::string weights_of(const Job& job) {
  const Finished run = finish(launch_of(job));
  EXPECT_EQ(run.code, 0) << run.errors;
  return common(run, job.workers, "weights");
}

// The lines by which worker `rank` ended.
std::string last_error(const Finished& run, int rank) {
  const auto lines = lines_of(run.errors, "[worker:" + std::to_string(rank) + "] error: ");
  return lines.empty() ? "nothing" : lines.back();
}

// Seconds in which this process ran, or could have: what a busy machine keeps from it, it keeps
// from others, too.
class Stopwatch {
 public:
  ~Stopwatch() {
    ended_ = true;
    napper_.join();
  }
  double seconds() const {
    return std::chrono::duration<double>(Clock::now() - began_).count() - lost_;
  }

 private:
  using Clock = std::chrono::steady_clock;
  void nap() {
    while (!ended_) {
      const auto before = Clock::now();
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
      const double took = std::chrono::duration<double>(Clock::now() - before).count();
      lost_ = lost_ + std::max(took - 0.02, 0.0);
    }
  }

  const Clock::time_point began_ = Clock::now();
  std::atomic<double> lost_ = 0;
  std::atomic<bool> ended_ = false;
  std::thread napper_{[this] { nap(); }};
};

// Within how many seconds all know of a death, and of a process that is frozen, which is said to be
// silent before it counts as dead; beyond that, for what a process prints beside others on two
// cores.
constexpr double kNamed = 3, kFrozen = 5, kTurns = 1;
// Within how many seconds of a death all processes train again, and make a few steps.
constexpr double kRecovered = 30;

// By the two others of three.
void expect_named(const Finished& run, int victim) {
  for (int rank = 0; rank < 3; ++rank) {
    if (rank == victim) continue;
    EXPECT_THAT(last_error(run, rank), HasSubstr("worker:" + std::to_string(victim))) << run.errors;
  }
}

TEST(CollectivesExample, FourProcessesPassAroundAndAddUp) {
  Launch launch = launch_of({.workers = 4});
  launch.program = std::getenv("COLLECTIVES");
  const Finished run = finish(launch);
  EXPECT_EQ(run.code, 0) << run.errors;
  EXPECT_EQ(said(run, 0, "ring"), "6") << run.output;
  EXPECT_THAT(run.output, HasSubstr("ranks=4 sum=10 differences=0"));
}

class Loops : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(MultiWorker, Loops, ::testing::Values("fit", "own"));

struct World {
  int workers, devices = 1;  // of each
};

// Each world trains to the loss of one process with one device.
void expect_to_train_as_one(std::vector<std::string> flags, const std::vector<World>& worlds) {
  flags.push_back("--shuffle=false");
  const Finished one = finish(launch_of({.workers = 1, .flags = flags}));
  ASSERT_EQ(one.code, 0) << one.errors;
  const double expected = std::stod(said(one, 0, "loss"));
  flags.push_back("");
  for (const auto& [workers, devices] : worlds) {
    flags.back() = "--devices=" + std::to_string(devices);
    const Finished run = finish(launch_of({.workers = workers, .flags = flags}));
    ASSERT_EQ(run.code, 0) << run.errors;
    EXPECT_EQ(common(run, workers, "replicas"), std::to_string(workers * devices));
    common(run, workers, "weights");
    EXPECT_NEAR(std::stod(common(run, workers, "loss")), expected, 1e-4 * expected);
  }
}

TEST_P(Loops, TwoAndThreeWorkersTrainAsOne) {
  expect_to_train_as_one({"--loop=" + GetParam()}, {{2}, {3}});
}

// The steps of worlds that share a batch alike have the rows of those of one process.
TEST(MultiWorker, LargeWorldsTrainAsOne) {
  expect_to_train_as_one({"--batch=40"}, {{5}, {8}, {.workers = 2, .devices = 4}});
}

// Everything that goes between two workers is encrypted, and nothing else changes.
TEST(MultiWorker, TrainingOverTlsHasTheSameBits) {
  const Certificates certificates;
  const TlsFiles files = certificates.files();
  Job job = {.workers = 2, .environment = {{"COHORT_COLLECTIVE_BACKEND", "tcp"}}};
  const std::string plain = weights_of(job);
  job.environment["COHORT_TLS_CERT"] = files.certificate;
  job.environment["COHORT_TLS_KEY"] = files.key;
  job.environment["COHORT_TLS_CA"] = files.authority;
  EXPECT_EQ(weights_of(job), plain);
}

// Of three workers, of which one is killed.
void expect_killed_and_named(const Launch& launch, int victim) {
  Launched launched(launch);
  launched.wait_for_errors("harm\n");
  const Stopwatch stopwatch;
  launched.wait_for_errors("] error: ");
  EXPECT_LT(stopwatch.seconds(), kNamed + kTurns) << launched.errors();
  const Finished run{launched.wait(), launched.output(), launched.errors()};
  EXPECT_EQ(run.code, 128 + 9) << run.errors;
  expect_named(run, victim);
}

// Of three workers, of which one is frozen: each of the others says so, first of its silence and
// then of its death.
void expect_frozen_and_named(Launch launch, int victim) {
  launch.flags[2] = "--grace=5";  // the leader waits for farewells before it ends
  Launched launched(launch);
  launched.wait_for_errors("harm\n");
  const Stopwatch stopwatch;
  launched.wait_for_errors("has been silent for");
  EXPECT_LT(stopwatch.seconds(), kNamed + kTurns) << launched.errors();
  launched.wait_for_errors("] error: ");
  EXPECT_LT(stopwatch.seconds(), kFrozen + kTurns) << launched.errors();
  const Finished run{launched.wait(), launched.output(), launched.errors()};
  EXPECT_NE(run.code, 0);
  expect_named(run, victim);
  for (int rank = 0; rank < 3; ++rank)
    if (rank != victim) {
      EXPECT_THAT(run.errors, ContainsRegex(str("\\[worker:", rank, "\\] [^\n]*worker:", victim,
                                                " [(][^\n]*[)][^\n]* has been silent for")));
    }
}

std::string victim_flag(int victim) { return str("--victim=", victim); }

TEST_P(Loops, SurvivorsOfAKilledWorkerNameIt) {
  for (const int victim : {0, 1, 2})
    expect_killed_and_named(launch_of({.workers = 3,
                                       .flags = {"--loop=" + GetParam(), "--harm=kill",
                                                 victim_flag(victim), "--epochs=50"}}),
                            victim);
}

// Each takes ten seconds: the leader in one loop, another worker in the other.
TEST_P(Loops, SurvivorsOfAFrozenWorkerNameIt) {
  const int victim = GetParam() == "fit" ? 1 : 0;
  expect_frozen_and_named(launch_of({.workers = 3,
                                     .flags = {"--loop=" + GetParam(), "--harm=stop",
                                               victim_flag(victim), "--epochs=1000"}}),
                          victim);
}

// The newest backup is of the sixth step, and the one before is there.
void expect_backups_of_sixth_step(const std::string& folder) {
  const std::string newest = folder + "/backup.safetensors";
  EXPECT_THAT(read_safetensors(newest).metadata.at("training"),
              AllOf(HasSubstr(R"("epoch":1)"), HasSubstr(R"("step":0)")));
  read_safetensors(newest + ".previous");
}

// A job of twelve steps that saves after every third, and where one comes to harm in the save after
// the ninth: the chief when it has written a part of the file.
class Saves : public Loops {
 protected:
  Job job(const std::string& folder) const {
    return {.workers = 3, .flags = {"--loop=" + GetParam(), "--save_freq=3", "--backup=" + folder}};
  }
  Launch launch_harmed(const std::string& folder, const std::string& harm, int victim) const {
    Job harmed = job(folder);
    harmed.flags.push_back("--harm=" + harm);
    harmed.flags.push_back("--at=save");
    harmed.flags.push_back("--step=9");
    harmed.flags.push_back(victim_flag(victim));
    return launch_of(harmed);
  }
  // What is left is the checkpoint of the sixth step, from which the job goes on.
  void expect_checkpoint_of_before(const std::string& folder) const {
    if (GetParam() == "own") {
      EXPECT_EQ(read_safetensors(folder + "/loop.safetensors").metadata.at("steps"), "6");
    } else {
      expect_backups_of_sixth_step(folder);
    }
    EXPECT_EQ(weights_of(job(folder)), undisturbed());
  }

 private:
  static const std::string& undisturbed() {
    static std::map<std::string, std::string> weights;  // by loop
    std::string& of_loop = weights[GetParam()];
    if (of_loop.empty()) of_loop = weights_of({.workers = 3, .flags = {"--loop=" + GetParam()}});
    return of_loop;
  }
};
INSTANTIATE_TEST_SUITE_P(MultiWorker, Saves, ::testing::Values("fit", "own"));

TEST_P(Saves, AWorkerThatIsKilledIsNamedAndTheCheckpointOfBeforeIsWhole) {
  for (const int victim : {0, 2}) {
    const TemporaryFolder folder("backup");
    expect_killed_and_named(launch_harmed(folder.path(), "kill", victim), victim);
    expect_checkpoint_of_before(folder.path());
  }
}

TEST_P(Saves, AWorkerThatIsFrozenIsNamedAndTheCheckpointOfBeforeIsWhole) {
  const int victim = GetParam() == "fit" ? 0 : 1;
  const TemporaryFolder folder("backup");
  expect_frozen_and_named(launch_harmed(folder.path(), "stop", victim), victim);
  expect_checkpoint_of_before(folder.path());
}

TEST_P(Loops, AnErrorOfOneWorkerEndsAll) {
  const Finished run = finish(
      launch_of({.workers = 3, .flags = {"--loop=" + GetParam(), "--harm=throw", "--epochs=50"}}));
  EXPECT_NE(run.code, 0);
  EXPECT_THAT(last_error(run, 1), HasSubstr("run out of luck"));
  for (const int rank : {0, 2}) EXPECT_THAT(last_error(run, rank), HasSubstr("worker:1"));
}

// Though it ends after the others, which it tells of its error.
TEST(MultiWorker, AnErrorOfTheChiefBeforeItTrainsIsThatOfTheJob) {
  for (int i = 0; i < 5; ++i) {
    const Finished run =
        finish(launch_of({.workers = 2, .flags = {"--harm=throw", "--at=joined", victim_flag(0)}}));
    EXPECT_EQ(run.code, exit_code(Code::kResourceExhausted)) << run.errors;
    EXPECT_THAT(last_error(run, 0), HasSubstr("run out of luck")) << run.errors;
  }
}

TEST(MultiWorker, AGradientThatIsNotFiniteIsAnErrorOfAllThatNamesItAndItsWorker) {
  const Finished run = finish(launch_of(
      {.workers = 3, .flags = {"--loop=own", "--non_finite=error", "--step=5", victim_flag(2)}}));
  EXPECT_EQ(run.code, 21) << run.errors;
  for (const int rank : {0, 1, 2})
    EXPECT_THAT(last_error(run, rank),
                AllOf(ContainsRegex("the gradient of variable \"[^\"]*bias\" is not finite"),
                      HasSubstr("on replica 2 in step 4, counted from 0"), HasSubstr("worker:2")));
}

TEST(MultiWorker, AllGoOnWithTheSameBitsWithoutAGradientThatIsNotFinite) {
  for (const std::string policy : {"skip", "zero"}) {
    const Job job{.workers = 3,
                  .flags = {"--loop=own", "--non_finite=" + policy, "--step=5", victim_flag(2)}};
    const Finished run = finish(launch_of(job));
    EXPECT_EQ(run.code, 0) << run.errors;
    common(run, job.workers, "weights");
    EXPECT_TRUE(std::isfinite(std::stod(common(run, job.workers, "loss")))) << policy;
  }
}

TEST(MultiWorker, AWorkerKilledAtTheStartEndsTheOthers) {
  const Finished run =
      finish(launch_of({.workers = 2, .flags = {"--harm=kill", "--at=start", "--epochs=50"}}));
  EXPECT_EQ(run.code, 128 + 9) << run.errors;
  EXPECT_EQ(said(run, 0, "weights"), "nothing");
}

TEST_P(Loops, AWorkerKilledBeforeThereAreVariablesIsNamed) {
  for (const int victim : {0, 1})
    expect_killed_and_named(
        launch_of({.workers = 3,
                   .flags = {"--loop=" + GetParam(), "--harm=kill", "--at=joined",
                             victim_flag(victim), "--epochs=50"}}),
        victim);
}

// When all have trained, and the others wait for it.
TEST(MultiWorker, AWorkerKilledBeforeTheEndOfTheStrategyIsAnErrorOfTheOthers) {
  for (const int victim : {0, 1})
    expect_killed_and_named(
        launch_of({.workers = 3, .flags = {"--harm=kill", "--at=end", victim_flag(victim)}}),
        victim);
}

TEST(MultiWorker, AWorkerFrozenBeforeTheEndOfTheStrategyIsAnErrorOfTheOthers) {
  expect_frozen_and_named(launch_of({.workers = 3, .flags = {"--harm=stop", "--at=end"}}), 1);
}

// With a restart, and soon.
void expect_to_go_on(Job job, const std::string& expected) {
  const TemporaryFolder folder("backup");
  job.flags.insert(job.flags.end(), {"--harm=kill", "--save_freq=3", "--backup=" + folder.path()});
  job.restarts = 1;
  Launched launched(launch_of(job));
  launched.wait_for_errors("harm\n");
  const Stopwatch stopwatch;
  const Finished run{launched.wait(), launched.output(), launched.errors()};
  EXPECT_LT(stopwatch.seconds(), kRecovered) << run.errors;
  EXPECT_EQ(run.code, 0) << run.errors;
  EXPECT_EQ(common(run, job.workers, "weights"), expected);
}

TEST_P(Loops, AJobGoesOnWithTheSameBitsAfterAnyOfItIsKilled) {
  for (const std::string backend : {"auto", "tcp"}) {
    const Job job{.workers = 3,
                  .flags = {"--loop=" + GetParam()},
                  .environment = {{"COHORT_COLLECTIVE_BACKEND", backend}}};
    const std::string expected = weights_of(job);
    for (const int victim : {0, 2}) {
      SCOPED_TRACE(str(backend, ", worker:", victim));
      Job harmed = job;
      harmed.flags.insert(harmed.flags.end(), {"--step=8", victim_flag(victim)});
      expect_to_go_on(harmed, expected);
    }
  }
}

TEST(MultiWorker, AJobGoesOnWithTheSameBitsAfterItsChiefIsKilledInASave) {
  Job job{.workers = 3, .environment = {{"COHORT_COLLECTIVE_BACKEND", "tcp"}}};
  const std::string expected = weights_of(job);
  job.flags = {"--at=save", "--step=9", victim_flag(0)};
  expect_to_go_on(job, expected);
}

// In the seventh step, on its way forward or back, in the reduction or the update, as it comes. The
// others may have done a part of the update then, and do not save it.
TEST(MultiWorker, AWorkerKilledAtAnyMomentOfAStepIsNamedAndTheJobGoesOnWithTheSameBits) {
  const auto [seed, count] = trials(20'261'127, 2);
  RandomStream random(seed);
  for (const std::string backend : {"auto", "tcp"}) {
    const Job job{.workers = 3,
                  .flags = {"--width=8192"},
                  .environment = {{"COHORT_COLLECTIVE_BACKEND", backend}}};
    const std::string expected = weights_of(job);
    for (uint64_t i = 0; i < count; ++i) {
      const auto victim = static_cast<int>(random.below(3));
      const uint64_t percent = random.below(100);
      SCOPED_TRACE(str(backend, ", worker:", victim, " after ", percent, "% of a step"));
      const TemporaryFolder folder("backup");
      Job saving = job;
      saving.flags.insert(saving.flags.end(), {"--save_freq=3", "--backup=" + folder.path()});
      Job harmed = saving;
      harmed.flags.insert(harmed.flags.end(), {"--harm=kill", "--at=next", "--step=6",
                                               str("--percent=", percent), victim_flag(victim)});
      expect_killed_and_named(launch_of(harmed), victim);
      expect_backups_of_sixth_step(folder.path());
      EXPECT_EQ(weights_of(saving), expected);
    }
  }
}

// An attempt comes four steps far, of which the last is lost: with what is saved, it takes four of
// them to make the twelve steps, and without, no number.
TEST(MultiWorker, AJobThatIsKilledAgainAndAgainEndsWithTheSameBits) {
  Job job{.workers = 3};
  const std::string expected = weights_of(job);
  const TemporaryFolder folder("backup");
  job.flags = {"--harm=kill", "--again", "--step=4", "--backup=" + folder.path()};
  job.restarts = 3;
  const Finished run = finish(launch_of(job));
  EXPECT_EQ(run.code, 0) << run.errors;
  EXPECT_EQ(common(run, job.workers, "weights"), expected);
  EXPECT_THAT(run.errors, HasSubstr("finished after 3 restarts"));
  for (const char* victim : {"worker:1", "worker:2", "worker:0"})
    EXPECT_EQ(lines_of(run.errors, std::string("[") + victim + "] harm").size(), 1u) << run.errors;
}

TEST_P(Loops, AWorkerThatStandsStillForThreeSecondsChangesNothing) {
  const std::string loop = "--loop=" + GetParam();
  const std::string expected = weights_of({.workers = 3, .flags = {loop}});
  for (const int victim : {0, 1})
    EXPECT_EQ(weights_of({.workers = 3,
                          .flags = {loop, "--harm=pause", "--victim=" + std::to_string(victim)}}),
              expected);
}

TEST_P(Loops, APreemptedWorkerStopsAllWithOneExitCodeAndTheJobGoesOn) {
  const TemporaryFolder folder("backup");
  const std::string loop = "--loop=" + GetParam(), backup = "--backup=" + folder.path();
  const std::string expected = weights_of({.workers = 2, .flags = {loop}});
  const Finished run = finish(launch_of(
      {.workers = 2, .flags = {loop, "--harm=term", "--step=4", "--save_freq=100", backup}}));
  EXPECT_EQ(run.code, 42) << run.errors;
  const std::string said =
      GetParam() == "fit" ? "CANCELLED: fit: interrupted in epoch 1" : "CANCELLED: interrupted ";
  for (const int rank : {0, 1}) EXPECT_THAT(last_error(run, rank), HasSubstr(said));
  EXPECT_EQ(last_error(run, 0), last_error(run, 1)) << "all at one step";
  EXPECT_THAT(last_error(run, 0), Not(HasSubstr("peer"))) << "it is nobody's fault";
  EXPECT_THAT(run.errors, ContainsRegex("cohort: worker:[01] has been asked to stop"));
  EXPECT_EQ(weights_of({.workers = 2, .flags = {loop, backup}}), expected);
}

TEST_P(Loops, APreemptedWorkerStopsAllAtOneStepWhereNothingIsSaved) {
  const Finished run = finish(
      launch_of({.workers = 3, .flags = {"--loop=" + GetParam(), "--harm=term", "--step=4"}}));
  EXPECT_EQ(run.code, 42) << run.errors;
  EXPECT_THAT(run.errors, Not(HasSubstr("has got"))) << "tables of what everybody did";
  EXPECT_THAT(last_error(run, 0), HasSubstr("interrupted"));
  for (const int rank : {1, 2}) EXPECT_EQ(last_error(run, rank), last_error(run, 0));
  for (const int rank : {0, 1, 2}) EXPECT_EQ(said(run, rank, "weights"), "nothing");
}

TEST(MultiWorker, APreemptionInAValidationStopsItAndTheJobGoesOn) {
  const std::string expected = weights_of({.workers = 2});
  const TemporaryFolder folder("backup");
  const std::vector<std::string> flags = {"--harm=term", "--at=validation", "--save_freq=100",
                                          "--backup=" + folder.path()};
  const Finished run = finish(launch_of({.workers = 2, .flags = flags}));
  EXPECT_EQ(run.code, 42) << run.errors;
  for (const int rank : {0, 1})
    EXPECT_THAT(last_error(run, rank), HasSubstr("fit: interrupted in epoch 1 after step 6"));
  EXPECT_EQ(weights_of({.workers = 2, .flags = {flags[3]}}), expected);
}

TEST(MultiWorker, APreemptedWorkerWithAGraceTrainsOnAndAllSaveTheSameStepTwice) {
  const std::string expected = weights_of({.workers = 2});
  const TemporaryFolder folder("backup");
  const std::string backup = "--backup=" + folder.path();
  const Finished run = finish(
      launch_of({.workers = 2,
                 .flags = {"--harm=term", "--step=2", "--grace=600", "--save_freq=100", backup}}));
  EXPECT_EQ(run.code, 42) << run.errors;
  for (const int rank : {0, 1})
    EXPECT_THAT(last_error(run, rank), HasSubstr("fit: interrupted in epoch 1 after step 6"));
  EXPECT_TRUE(std::filesystem::exists(folder.path() + "/backup.safetensors.previous"))
      << "saved at once";
  EXPECT_EQ(weights_of({.workers = 2, .flags = {backup}}), expected);
}

TEST(MultiWorker, APreemptionOfAllStopsThemAtOneStepAndTheJobGoesOn) {
  const std::string expected = weights_of({.workers = 3, .flags = {"--epochs=30"}});
  const TemporaryFolder folder("backup");
  const Job job{.workers = 3,
                .flags = {"--epochs=30", "--save_freq=5", "--backup=" + folder.path()}};
  Launched launched(launch_of(job));
  const std::string backup = folder.path() + "/backup.safetensors";
  ASSERT_TRUE(eventually([&] { return std::filesystem::exists(backup); })) << launched.errors();
  launched.send(SIGTERM);  // which cohort-run passes on to all
  const Finished run{launched.wait(), launched.output(), launched.errors()};
  EXPECT_EQ(run.code, 42) << run.errors;
  EXPECT_THAT(last_error(run, 0), HasSubstr("CANCELLED: fit: interrupted in epoch "));
  for (const int rank : {1, 2}) EXPECT_EQ(last_error(run, rank), last_error(run, 0));
  EXPECT_EQ(weights_of(job), expected);
}

TEST(MultiWorker, AnEndedJobLeavesNobodyBehind) {
  const Finished run = finish(launch_of({.workers = 4}));
  EXPECT_EQ(run.code, 0);
  EXPECT_THAT(run.errors, Not(HasSubstr("warning")));
}

}  // namespace
}  // namespace cohort::testing
