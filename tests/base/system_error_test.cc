#include "core/base/system_error.h"

#include <cerrno>

#include "tests/data/testing.h"

namespace cohort {
namespace {

TEST(SystemError, HasACodeByWhatTheCallerCanDo) {
  for (const int number : {ENOENT, ENOTDIR}) EXPECT_EQ(code_of_errno(number), Code::kNotFound);
  for (const int number : {EACCES, EPERM, EROFS})
    EXPECT_EQ(code_of_errno(number), Code::kPermissionDenied);
  for (const int number : {ENOSPC, EDQUOT, EFBIG, EMFILE, ENFILE, ENOMEM, EAGAIN, EADDRINUSE})
    EXPECT_EQ(code_of_errno(number), Code::kResourceExhausted);
  for (const int number : {EISDIR, ENAMETOOLONG})
    EXPECT_EQ(code_of_errno(number), Code::kInvalidArgument);
  EXPECT_EQ(code_of_errno(EIO), Code::kUnknown);
}

TEST(SystemError, TellsWhereThereAreNoLocksFromALockThatIsTakenOrFails) {
  for (const int number : {EINVAL, ENOLCK, ENOSYS, EOPNOTSUPP}) EXPECT_TRUE(has_no_locks(number));
  for (const int number : {EWOULDBLOCK, EINTR, EBADF, EIO}) EXPECT_FALSE(has_no_locks(number));
}

TEST(SystemError, SaysWhatFailedOnWhichPathAndWhy) {
  errno = EISDIR;
  data::expect_error([] { fail_errno("open", "/some/folder"); }, Code::kInvalidArgument,
                     {"cannot open /some/folder: Is a directory"});
}

}  // namespace
}  // namespace cohort
