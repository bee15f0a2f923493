#pragma once

#include <memory>
#include <string>

#include "strategies/cluster/address.h"
#include "strategies/cluster/coordination/certified_tasks.h"
#include "strategies/cluster/environment.h"

namespace grpc {
class AuthContext;
class ChannelCredentials;
class ServerCredentials;
}  // namespace grpc

namespace cohort {

// The files, in PEM, with which the tasks of a job prove to each other who they are (mutual TLS).
// All three or none.
struct TlsFiles {
  std::string certificate;  // of this task, and those up to the authority
  std::string key;          // its private key
  std::string authority;    // certificates of who signs those of all tasks
  // The name that the leader's certificate must carry; by default the host of its address.
  std::string leader_name = {};
};

namespace coordination {

// How members and leader talk: encrypted and authenticated both ways, or in plain text.
class Security {
 public:
  // What `files` leaves empty comes from COHORT_TLS_CERT, COHORT_TLS_KEY, COHORT_TLS_CA and
  // COHORT_TLS_LEADER_NAME; COHORT_ALLOW_PLAINTEXT=1 allows plain text too, and
  // COHORT_TLS_REQUIRE_TASK=1 refuses certificates that name no task. Reads the files.
  // kInvalidArgument where some are given and others are missing, or hold no PEM; errors of
  // reading.
  Security(TlsFiles files, bool allow_plaintext, const Environment& environment);

  bool encrypted() const { return !certificate_.empty(); }
  bool allows_plaintext() const { return allow_plaintext_; }
  // Throws kFailedPrecondition where plain text would go beyond this host and nobody has allowed
  // it.
  void check(const Address& leader, bool loopback) const;

  std::shared_ptr<grpc::ServerCredentials> server_credentials() const;
  std::shared_ptr<grpc::ChannelCredentials> channel_credentials() const;
  // Which tasks the caller behind a connection may be, by its certificate.
  CertifiedTasks tasks_of(const grpc::AuthContext& caller) const;
  // The name that a member expects in the certificate of a leader at this address.
  const std::string& leader_name(const Address& leader) const;

 private:
  TlsFiles files_;
  bool allow_plaintext_, require_task_;
  std::string certificate_, key_, authority_;  // contents
};

}  // namespace coordination
}  // namespace cohort
