#include "core/collective/parts.h"

#include <thread>
#include <utility>

#include "tests/collective/ranks.h"

namespace cohort::testing {
namespace {

std::unique_ptr<Communicator> make_group_of_one() {
  return std::move(make_in_process_communicators(1)[0]);
}

TEST(PartsTest, APartThatComesAfterTheAbortHasItsError) {
  Parts parts;
  parts.abort(Error(Code::kUnavailable, "a worker is lost", "worker:1"));
  parts.abort(Error(Code::kCancelled, "and again"));
  const auto part = parts.add(make_group_of_one());
  const Error error = error_of([&] { part->barrier(); });
  EXPECT_EQ(error.code(), Code::kUnavailable);
  EXPECT_EQ(error.message(), "a worker is lost");
  EXPECT_EQ(error.peer(), "worker:1");
}

TEST(PartsTest, OutliveTheGroupThatTheyWereMadeOf) {
  std::unique_ptr<Communicator> part;
  {
    Parts parts;
    part = parts.add(make_group_of_one());
    EXPECT_EQ(parts.add(nullptr), nullptr);
  }
  part->barrier();
}

TEST(PartsTest, ComeAndGoDuringAnAbort) {
  Parts parts;
  std::thread aborting([&] {
    for (int i = 0; i < 200; ++i) parts.abort(Error(Code::kAborted, "stop"));
  });
  for (int i = 0; i < 200; ++i) parts.add(make_group_of_one());
  aborting.join();
  const auto part = parts.add(make_group_of_one());
  EXPECT_EQ(error_of([&] { part->barrier(); }).code(), Code::kAborted);
}

}  // namespace
}  // namespace cohort::testing
