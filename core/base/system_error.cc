#include "core/base/system_error.h"

#include <cerrno>
#include <cstring>

namespace cohort {

Code code_of_errno(int number) {
  switch (number) {
    case ENOENT:
    case ENOTDIR:
      return Code::kNotFound;
    case EACCES:
    case EPERM:
    case EROFS:
      return Code::kPermissionDenied;
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
    case EMFILE:
    case ENFILE:
    case ENOMEM:
    case EAGAIN:
    case EADDRINUSE:
      return Code::kResourceExhausted;
    case EISDIR:
    case ELOOP:
    case ENAMETOOLONG:
      return Code::kInvalidArgument;
    default:
      return Code::kUnknown;
  }
}

bool has_no_locks(int number) {
  return number == EINVAL || number == ENOLCK || number == ENOSYS || number == EOPNOTSUPP;
}

void fail_errno(std::string_view action, const std::string& path) {
  const int error = errno;
  fail(code_of_errno(error), "cannot ", action, " ", path, ": ", std::strerror(error));
}

}  // namespace cohort
