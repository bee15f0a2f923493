// A scope that was entered on one thread, and a model that was made on another: each worker then
// trains it for itself.
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>

#include "core/base/notice.h"
#include "strategies/process_group.h"
#include "tests/train/multi_worker_testing.h"

namespace cohort::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Worker = MultiWorkerMirroredStrategy;

// What the library says while one is alive.
class Notices {
 public:
  Notices() {
    set_notice_sink([this](std::string_view lines) {
      const std::lock_guard lock(mutex_);
      said_.emplace_back(lines);
    });
  }
  ~Notices() { set_notice_sink({}); }
  Notices(const Notices&) = delete;
  Notices& operator=(const Notices&) = delete;
  const std::vector<std::string>& get() const { return said_; }

 private:
  std::mutex mutex_;
  std::vector<std::string> said_;
};

void on_another_thread(const std::function<void()>& work) { std::thread(work).join(); }

void train() { classifier().fit(points(8).batch(4), {.verbose = Verbose::kSilent}); }

TEST(IdleScopeTest, WhereAnotherThreadHasTrainedWithoutItIsToldOnce) {
  const Notices notices;
  on_good_workers(3, [](Worker& worker) {
    const auto scope = worker.scope();
    on_another_thread(train);
  });
  EXPECT_THAT(notices.get(),
              ElementsAre(AllOf(HasSubstr("warning: no variable was made in the scope of "
                                          "MultiWorkerMirroredStrategy, and its 3 workers"),
                                HasSubstr("enter strategy.scope() in the thread"))));
}

TEST(IdleScopeTest, IsNoneWhereItWasUsedOrNothingWasTrainedWithoutIt) {
  const std::function<void(Worker&)> bodies[] = {
      [](Worker&) {},
      [](Worker& worker) {
        on_another_thread([&] {
          const auto own = worker.scope();
          train();
        });
      },
      // A program that evaluates what others have trained.
      [](Worker&) { on_another_thread([] { classifier().evaluate(points(8).batch(4)); }); },
      // One that combines by itself what its workers train.
      [](Worker& worker) {
        on_another_thread(train);
        worker.reduce("mean", Tensor::scalar(1.0F));
      },
      [](Worker& worker) {
        on_another_thread(train);
        worker.workers().exchange("the end of training", "");
      },
      [](Worker& worker) {
        collective::ProcessGroup group({.link = worker.link()});
        on_another_thread(train);
        collective::barrier(group);
      }};
  for (const auto& body : bodies) {
    const Notices notices;
    on_good_workers(2, [&](Worker& worker) {
      const auto scope = worker.scope();
      body(worker);
    });
    EXPECT_THAT(notices.get(), IsEmpty()) << "case " << &body - bodies;
  }
}

// As where only the numbers of workers are of interest.
TEST(IdleScopeTest, IsNoneThatWasNotEntered) {
  const Notices notices;
  on_good_workers(2, [](Worker&) { on_another_thread(train); });
  EXPECT_THAT(notices.get(), IsEmpty());
}

TEST(IdleScopeTest, IsNoMatterWhereTheProgramEndsByAnError) {
  const Notices notices;
  const auto errors = on_workers(2, [](Worker& worker) {
    const auto scope = worker.scope();
    on_another_thread(train);
    fail(Code::kNotFound, "there is no file \"x\"");
  });
  EXPECT_THAT(errors, ::testing::Each("NOT_FOUND: there is no file \"x\""));
  EXPECT_THAT(notices.get(), IsEmpty());
}

}  // namespace
}  // namespace cohort::testing
