#pragma once

#include <cstdint>
#include <exception>
#include <locale>
#include <sstream>
#include <string>
#include <string_view>

namespace cohort {

// Canonical error codes, with the numbers and meanings that gRPC and Abseil give them.
enum class Code : int {
  kCancelled = 1,
  kUnknown = 2,
  kInvalidArgument = 3,  // The caller wrote something wrong, whatever the state of the system.
  kDeadlineExceeded = 4,
  kNotFound = 5,
  kAlreadyExists = 6,
  kPermissionDenied = 7,
  kResourceExhausted = 8,   // Out of memory, disk, file descriptors.
  kFailedPrecondition = 9,  // Right call, wrong moment: fix the state, then call again.
  kAborted = 10,
  kOutOfRange = 11,
  kUnimplemented = 12,
  kInternal = 13,     // A bug of this library.
  kUnavailable = 14,  // A peer cannot be reached.
  kDataLoss = 15,     // A file or message is truncated or corrupt.
};

// "INVALID_ARGUMENT" and so on.
std::string_view code_name(Code code);

// The code with that number, as a peer or a file may say it; kUnknown where none has it.
Code code_of(int64_t number);

// The one exception type of the library. `message()` names what the user wrote (layer, variable,
// flag, file and offset), what was found and what is allowed; `peer()` names the task at fault, or
// is empty.
class Error : public std::exception {
 public:
  Error(Code code, std::string message, std::string peer = "");

  Code code() const { return code_; }
  const std::string& message() const { return message_; }
  const std::string& peer() const { return peer_; }
  // "INVALID_ARGUMENT: message (peer worker:1)".
  const char* what() const noexcept override { return what_.c_str(); }

  // The same error with "context: " in front of its message; used while it passes a layer or a
  // file.
  Error with_context(std::string_view context) const;

 private:
  Code code_;
  std::string message_;
  std::string peer_;
  std::string what_;
};

// The process exit code that a program should end with for an error; documented in README.
int exit_code(Code code);

// Streams all parts into one string: str("axis ", axis, " of ", shape). Numbers are written alike
// whatever the program's locale is.
template <typename... Parts>
std::string str(const Parts&... parts) {
  std::ostringstream out;
  out.imbue(std::locale::classic());
  (out << ... << parts);
  return out.str();
}

// Throws an Error whose message is all parts in a row.
template <typename... Parts>
[[noreturn]] void fail(Code code, const Parts&... parts) {
  throw Error(code, str(parts...));
}

// The same with kInvalidArgument.
template <typename... Parts>
[[noreturn]] void invalid(const Parts&... parts) {
  throw Error(Code::kInvalidArgument, str(parts...));
}

}  // namespace cohort

// Checks an invariant of our own; a failure is a bug of this library and throws Code::kInternal.
// Nothing that comes from a file, a flag, a network or the environment may reach it.
#define COHORT_CHECK(condition)                                                            \
  do {                                                                                     \
    if (!(condition)) [[unlikely]]                                                         \
      ::cohort::fail(::cohort::Code::kInternal, __FILE__, ":", __LINE__, ": ", #condition, \
                     " does not hold");                                                    \
  } while (false)
