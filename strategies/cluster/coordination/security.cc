#include "strategies/cluster/coordination/security.h"

#include <vector>

#include <grpc/grpc_security_constants.h>
#include <grpcpp/grpcpp.h>

#include "core/base/error.h"
#include "core/base/file.h"
#include "strategies/cluster/coordination/certificates.h"
#include "strategies/cluster/parsing.h"

namespace cohort::coordination {
namespace {

constexpr uint64_t kMaxPemBytes = 1 << 20;

bool switch_of(const std::string& name, const Environment& environment) {
  const std::string value = environment(name).value_or("");
  if (!value.empty() && value != "0" && value != "1")
    config::refuse(name, config::quote(value), "0 or 1", name + "=1");
  return value == "1";
}

}  // namespace

Security::Security(TlsFiles files, bool allow_plaintext, const Environment& environment)
    : files_(std::move(files)), allow_plaintext_(allow_plaintext) {
  struct File {
    std::string &path, &content;
    const char* variable;
  };
  File all[] = {{files_.certificate, certificate_, "COHORT_TLS_CERT"},
                {files_.key, key_, "COHORT_TLS_KEY"},
                {files_.authority, authority_, "COHORT_TLS_CA"}};
  const char *given = nullptr, *missing = nullptr;
  for (File& file : all) {
    if (file.path.empty()) file.path = environment(file.variable).value_or("");
    (file.path.empty() ? missing : given) = file.variable;
  }
  if (given && missing) {
    invalid("encryption needs a certificate, a key and an authority: ", given, " is given and ",
            missing, " is missing");
  }
  if (given) {
    for (File& file : all) file.content = read_file(file.path, kMaxPemBytes);
    const auto name = [](const File& file) { return str(file.path, " (", file.variable, ")"); };
    check_certificates({certificate_, name(all[0])}, {key_, name(all[1])},
                       {authority_, name(all[2])});
  }
  if (files_.leader_name.empty()) {
    files_.leader_name = environment("COHORT_TLS_LEADER_NAME").value_or("");
  }
  allow_plaintext_ |= switch_of("COHORT_ALLOW_PLAINTEXT", environment);
  require_task_ = switch_of("COHORT_TLS_REQUIRE_TASK", environment);
}

void Security::check(const Address& leader, bool loopback) const {
  if (encrypted() || loopback || allow_plaintext_) return;
  fail(Code::kFailedPrecondition, "tasks would talk to their leader at ", leader.text(),
       " in plain text, beyond this host. Give every task certificates (COHORT_TLS_CERT, "
       "COHORT_TLS_KEY and COHORT_TLS_CA), or set COHORT_ALLOW_PLAINTEXT=1 for all of them if "
       "everybody on the network may be trusted");
}

std::shared_ptr<grpc::ServerCredentials> Security::server_credentials() const {
  if (!encrypted()) return grpc::InsecureServerCredentials();
  grpc::SslServerCredentialsOptions options(
      GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  options.pem_root_certs = authority_;
  options.pem_key_cert_pairs.push_back({key_, certificate_});
  return grpc::SslServerCredentials(options);
}

std::shared_ptr<grpc::ChannelCredentials> Security::channel_credentials() const {
  if (!encrypted()) return grpc::InsecureChannelCredentials();
  return grpc::SslCredentials({authority_, key_, certificate_});
}

CertifiedTasks Security::tasks_of(const grpc::AuthContext& caller) const {
  if (!encrypted()) return {};
  std::vector<std::string> names;
  for (const grpc::string_ref& name : caller.FindPropertyValues(GRPC_X509_SAN_PROPERTY_NAME))
    names.emplace_back(name.data(), name.size());
  return {names, require_task_};
}

const std::string& Security::leader_name(const Address& leader) const {
  return files_.leader_name.empty() ? leader.host() : files_.leader_name;
}

}  // namespace cohort::coordination
