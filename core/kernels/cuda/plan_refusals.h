#pragma once

#include <optional>
#include <string>

#include "core/base/error.h"
#include "core/base/notice.h"
#include "core/device/device.h"

// What becomes of plans that cuDNN does not make: whether it cannot, or something has failed, which
// may have passed when it is asked again.
namespace cohort::cuda {

// cuDNN's statuses by their numbers, whose thousands are classes (CUDNN_STATUS_CATEGORY):
// kUnimplemented for what it does not do or does not take (NOT_SUPPORTED, BAD_PARAM),
// kResourceExhausted for memory, else kInternal.
constexpr Code code_of_cudnn(int status) {
  constexpr int kBadParameter = 2, kNotSupported = 3, kNoHostMemory = 4003, kNoDeviceMemory = 4004;
  if (status == kNoHostMemory || status == kNoDeviceMemory) return Code::kResourceExhausted;
  const int category = status / 1000;
  return category == kBadParameter || category == kNotSupported ? Code::kUnimplemented
                                                                : Code::kInternal;
}

// Whether CUDA has failed, or another library that cuDNN calls (EXECUTION_FAILED).
constexpr bool is_failure_of_cuda(int status) { return status / 1000 == 5; }

// What cuDNN said instead of making plans for one problem, of which one would have been enough. An
// engine may refuse by any status, as where it cannot be compiled.
class PlanRefusals {
 public:
  // `words` are what it said with `status`. Throws kResourceExhausted.
  void add(int status, const std::string& words) {
    const Error error(code_of_cudnn(status), str("cuDNN: ", words));
    if (error.code() == Code::kResourceExhausted) throw Error(error);
    std::optional<Error>& first = is_failure_of_cuda(status) ? failure_ : refusal_;
    if (!first) first = error;
  }
  // Throws why there is no plan: the first failure of CUDA, else kUnimplemented with the first
  // refusal.
  [[noreturn]] void tell() const {
    if (failure_) throw Error(*failure_);
    fail(Code::kUnimplemented, "no engine of cuDNN takes it",
         refusal_ ? ": " + refusal_->message() : "");
  }

 private:
  std::optional<Error> refusal_, failure_;
};

// What `make` makes. Null where that is kUnimplemented, and a warning that names `what` is done and
// how it is done without, unless that is empty. All other errors are passed on.
template <typename Make>
auto made_unless_refused(Device device, const std::string& what, const Make& make)
    -> decltype(make()) {
  try {
    return make();
  } catch (const Error& error) {
    if (error.code() != Code::kUnimplemented) throw;
    if (!what.empty())
      print_notice(str("warning: ", device, ": ", what, ": ", error.message(), "\n"));
    return nullptr;
  }
}

}  // namespace cohort::cuda
