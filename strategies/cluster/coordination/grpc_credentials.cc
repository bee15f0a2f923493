#include "strategies/cluster/coordination/grpc_credentials.h"

#include <algorithm>
#include <latch>
#include <string>
#include <thread>
#include <vector>

#include <grpc/grpc.h>
#include <grpc/grpc_security_constants.h>
#include <grpcpp/grpcpp.h>

#include "core/base/cores.h"
#include "core/base/start_threads.h"
#include "strategies/cluster/coordination/grpc_log.h"

namespace cohort::coordination {
namespace {

// Before main(), so that a program which sets a function of its own keeps that: gRPC does not tell
// whether there is one already.
[[maybe_unused]] const bool kLimited = (limit_grpc_errors(), true);

// Some more than gRPC 1.51 has, about ten and one for each core, and than are started beside them:
// for one that the system refuses it, it waits for ever.
int count_threads() { return 20 + 2 * std::min(available_cores(), 16); }

// All at one time, as they will be.
void require_threads() {
  std::latch all(1);
  const auto wait = [&](int) { all.wait(); };
  try {
    std::vector<std::thread> threads =
        start_threads(count_threads(), wait, [&](const Error&) { all.count_down(); });
    all.count_down();
    for (std::thread& thread : threads) thread.join();
  } catch (const Error& error) {
    throw error.with_context("the threads of gRPC");
  }
}

}  // namespace

void keep_grpc() {
  [[maybe_unused]] static const bool kept = (require_threads(), grpc_init(), true);
}

std::shared_ptr<grpc::ServerCredentials> server_credentials(const Security& security) {
  if (!security.encrypted()) return grpc::InsecureServerCredentials();
  grpc::SslServerCredentialsOptions options(
      GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  options.pem_root_certs = security.authority();
  options.pem_key_cert_pairs.push_back({security.key(), security.certificate()});
  return grpc::SslServerCredentials(options);
}

std::shared_ptr<grpc::ChannelCredentials> channel_credentials(const Security& security) {
  if (!security.encrypted()) return grpc::InsecureChannelCredentials();
  return grpc::SslCredentials({security.authority(), security.key(), security.certificate()});
}

CertifiedTasks tasks_of(const grpc::AuthContext& caller, const Security& security) {
  std::vector<std::string> names;
  for (const grpc::string_ref& name : caller.FindPropertyValues(GRPC_X509_SAN_PROPERTY_NAME))
    names.emplace_back(name.data(), name.size());
  return security.tasks_of(names);
}

}  // namespace cohort::coordination
