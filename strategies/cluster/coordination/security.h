#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "strategies/cluster/address.h"
#include "strategies/cluster/coordination/certified_tasks.h"
#include "strategies/cluster/environment.h"
#include "strategies/cluster/net/stream.h"
#include "strategies/cluster/net/tls_identity.h"

namespace cohort {

// The files, in PEM, with which the tasks of a job prove to each other who they are (mutual TLS).
// All three or none.
struct TlsFiles {
  std::string certificate = {};  // of this task, and those up to the authority
  std::string key = {};          // its private key
  std::string authority = {};    // certificates of who signs those of all tasks
  // The name that the leader's certificate must carry; by default the host of its address.
  std::string leader_name = {};
};

namespace coordination {

// How members and leader talk: encrypted and authenticated both ways, or in plain text.
class Security {
 public:
  // What `files` leaves empty comes from COHORT_TLS_CERT, COHORT_TLS_KEY, COHORT_TLS_CA and
  // COHORT_TLS_LEADER_NAME; COHORT_ALLOW_PLAINTEXT=1 allows plain text too, and
  // COHORT_TLS_REQUIRE_TASK=1 refuses certificates that name no task. Reads the files, and warns of
  // unknown settings in the environment of this process.
  // kInvalidArgument where some are given and others are missing, cannot be opened, or hold no PEM;
  // other errors of reading. They name the variable, also of a file that `files` names.
  // `allowed_by`, a literal: how the user has written `allow_plaintext`, for the warning.
  Security(TlsFiles files, bool allow_plaintext, const Environment& environment,
           std::string_view allowed_by = "allow_plaintext");

  bool encrypted() const { return identity_.has_value(); }
  // Throws kFailedPrecondition where plain text would go beyond this host and nobody has allowed
  // it; where somebody has, a warning says so, one in this process. `traffic`: "between tasks and
  // their leader at 10.0.0.1:2222".
  void check(std::string_view traffic, bool loopback) const;

  // Which tasks somebody may be whose certificate has these subject alternative names.
  CertifiedTasks tasks_of(const std::vector<std::string>& names) const;
  // The name that whoever calls a leader, or another server, at `host` expects in its certificate.
  const std::string& name_at(const std::string& host) const;

  // A connection over `socket`, which may not be there yet: by TLS where there are certificates.
  net::Stream connect(net::Descriptor socket, net::Stream::End own) const;
  // What follows is of streams that have shaken hands, and for nothing in plain text. Which tasks
  // the other end may be:
  CertifiedTasks tasks_of(const net::Stream& peer) const;
  // Throws kPermissionDenied unless the certificate of the other end, which was called at `host`,
  // carries name_at(host).
  void check_name(const net::Stream& peer, const std::string& host) const;
  // The same, unless the certificate is for certain tasks: then `task` ("worker:1") of this job
  // must be one of them.
  void check_called(const net::Stream& peer, const std::string& host, std::string_view job_id,
                    std::string_view task) const;

  // The contents of the files.
  const std::string& certificate() const { return certificate_; }
  const std::string& key() const { return key_; }
  const std::string& authority() const { return authority_; }

 private:
  TlsFiles files_;
  std::string_view plaintext_allowed_by_;  // empty: by nobody
  bool require_task_;
  std::string certificate_, key_, authority_;
  std::optional<net::TlsIdentity> identity_;
};

}  // namespace coordination
}  // namespace cohort
