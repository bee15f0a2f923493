#include "core/base/program.h"

#include <functional>
#include <new>
#include <stdexcept>
#include <string>

#include <gtest/gtest.h>

#include "core/base/error.h"

namespace cohort {
namespace {

// A program of this body: its exit code, and what it says.
struct Ended {
  int code = 0;
  std::string said;
};
Ended run(const std::function<void()>& body) {
  ::testing::internal::CaptureStderr();
  const int code = run_main(body);
  return {code, ::testing::internal::GetCapturedStderr()};
}

TEST(RunMain, GivesEachExceptionItsExitCodeAndALine) {
  const Ended well = run([] {}), error = run([] { invalid("no such flag"); }),
              memory = run([] { throw std::bad_alloc(); }),
              other = run([] { throw std::runtime_error("no ink"); }), none = run([] { throw 3; });
  EXPECT_EQ(well.code, 0);
  EXPECT_EQ(well.said, "");
  EXPECT_EQ(error.code, exit_code(Code::kInvalidArgument));
  EXPECT_EQ(error.said, "error: INVALID_ARGUMENT: no such flag\n");
  EXPECT_EQ(memory.code, exit_code(Code::kResourceExhausted));
  EXPECT_EQ(memory.said, "error: RESOURCE_EXHAUSTED: there is no memory\n");
  EXPECT_EQ(other.code, 1);
  EXPECT_EQ(other.said, "error: no ink\n");
  EXPECT_EQ(none.code, 1);
  EXPECT_EQ(none.said, "error: what was thrown is not a std::exception\n");
}

}  // namespace
}  // namespace cohort
