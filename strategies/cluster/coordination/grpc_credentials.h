#pragma once

#include <memory>

#include "strategies/cluster/coordination/security.h"

namespace grpc {
class AuthContext;
class ChannelCredentials;
class ServerCredentials;
}  // namespace grpc

// Security in the terms of gRPC.
namespace cohort::coordination {

std::shared_ptr<grpc::ServerCredentials> server_credentials(const Security& security);
std::shared_ptr<grpc::ChannelCredentials> channel_credentials(const Security& security);
// To be called before gRPC is used: keeps it from ending with its last user, which sometimes waits
// 10 s for a thread of its own. kResourceExhausted where the system does not let this process have
// the threads that gRPC starts.
void keep_grpc();
// Which tasks the caller behind a connection may be, by its certificate.
CertifiedTasks tasks_of(const grpc::AuthContext& caller, const Security& security);

}  // namespace cohort::coordination
