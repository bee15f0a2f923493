// What workers tell each other of exceptions.
#include "core/distribute/workers.h"

#include <exception>
#include <new>
#include <stdexcept>
#include <string>
#include <vector>

#include <gmock/gmock.h>

namespace cohort {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Keeps what the others would throw.
class Listener : public Workers {
 public:
  int size() const override { return 2; }
  [[noreturn]] void fail(const Error& error) override {
    told.push_back(error.message());
    throw error;
  }
  std::vector<std::string> told;
};

// Throws the same object with every call.
class Broken {
 public:
  void operator()() const { std::rethrow_exception(error_); }

 private:
  const std::exception_ptr error_ = std::make_exception_ptr(std::runtime_error("no ink"));
};

TEST(TogetherTest, AnExceptionThatLeavesSeveralIsToldOnce) {
  Listener workers;
  const Broken broken;
  const auto inner = [&] { together(workers, broken); };
  EXPECT_THROW(together(workers, [&] { together(workers, inner); }), std::runtime_error);
  EXPECT_THAT(workers.told, ElementsAre("no ink"));
}

// As an input does that has failed.
TEST(TogetherTest, AnExceptionThatIsThrownAgainIsToldAgain) {
  Listener workers;
  const Broken broken;
  for (int i = 0; i < 2; ++i) EXPECT_THROW(together(workers, broken), std::runtime_error);
  EXPECT_THAT(workers.told, ElementsAre("no ink", "no ink"));
}

TEST(TogetherTest, OneThatIsCaughtInsideIsForgottenWithTheOutermostCall) {
  Listener workers;
  const Broken broken;
  together(workers, [&] { EXPECT_THROW(together(workers, broken), std::runtime_error); });
  EXPECT_THROW(together(workers, broken), std::runtime_error);
  EXPECT_THAT(workers.told, ElementsAre("no ink", "no ink"));
}

TEST(TogetherTest, AnotherExceptionInTheSameCallIsToldToo) {
  Listener workers;
  EXPECT_THROW(together(workers,
                        [&] {
                          EXPECT_THROW(together(workers, Broken()), std::runtime_error);
                          throw std::logic_error("no paper");
                        }),
               std::logic_error);
  EXPECT_THAT(workers.told, ElementsAre("no ink", "no paper"));
}

TEST(TogetherTest, AWorkerAloneThrowsWhatWasThrown) {
  struct OwnError : Error {
    using Error::Error;
  };
  Workers alone;
  EXPECT_THROW(together(alone, [] { throw OwnError(Code::kAborted, "no ink"); }), OwnError);
  EXPECT_THROW(together(alone, [] { throw std::bad_alloc(); }), std::bad_alloc);
}

TEST(TogetherTest, NothingIsToldOfWhatSucceeds) {
  Listener workers;
  EXPECT_EQ(together(workers, [] { return 7; }), 7);
  EXPECT_THAT(workers.told, IsEmpty());
}

}  // namespace
}  // namespace cohort
