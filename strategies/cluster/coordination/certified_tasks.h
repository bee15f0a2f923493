#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/error.h"

namespace cohort::coordination {

// Which tasks the holder of a certificate may be. Its subject alternative names say so by URIs,
// cohort://JOB/worker/1, in which * may stand for the job or the index. A value; thread-safe.
class CertifiedTasks {
 public:
  // Every task, as with no certificate at all.
  CertifiedTasks() = default;
  // `names`: all subject alternative names. Without any such URI: every task, unless one is
  // `required`.
  CertifiedTasks(const std::vector<std::string>& names, bool required);

  // Throws kPermissionDenied, with what the certificate is for, unless that is `task` ("worker:1")
  // of this job.
  void check(std::string_view job_id, std::string_view task) const;

 private:
  bool restricted_ = false;
  std::vector<std::string> uris_;
};

}  // namespace cohort::coordination
