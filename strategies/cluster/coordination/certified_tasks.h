#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/error.h"

namespace cohort::coordination {

// Behind a task's name: the part of a coordinator's task that executes, which calls the parameter
// servers besides the task itself.
inline constexpr std::string_view kExecutor = "/executor";

// Which tasks the holder of a certificate may be. Its subject alternative names say so by URIs,
// cohort://JOB/worker/1, in which * may stand for the job or the index, and the case of the scheme
// does not matter. Any other URI of the scheme names no task, and restricts as well: what is
// misspelt allows nothing. A value; thread-safe.
class CertifiedTasks {
 public:
  // Every task, as with no certificate at all.
  CertifiedTasks() = default;
  // `names`: all subject alternative names. Without any such URI: every task, unless one is
  // `required`.
  CertifiedTasks(const std::vector<std::string>& names, bool required);

  // Whether there are tasks that the holder may not be.
  bool is_restricted() const { return restricted_; }
  // Throws kPermissionDenied, with what the certificate is for, unless that is `task` of this job:
  // "worker:1", or "worker:1/executor", and no other name that begins with a task's.
  void check(std::string_view job_id, std::string_view task) const;
  // The same unless it is for some task of this type.
  void check_type(std::string_view type) const;

 private:
  template <typename Fits>
  void check_any(const Fits& fits, const std::string& who) const;

  bool restricted_ = false;
  std::vector<std::string> uris_;
};

}  // namespace cohort::coordination
