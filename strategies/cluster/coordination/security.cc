#include "strategies/cluster/coordination/security.h"

#include <atomic>

#include "core/base/error.h"
#include "core/base/file.h"
#include "core/base/notice.h"
#include "strategies/cluster/parsing.h"
#include "strategies/cluster/settings.h"

namespace cohort::coordination {
namespace {

constexpr uint64_t kMaxPemBytes = 1 << 20;

bool switch_of(const std::string& name, const Environment& environment) {
  const std::string value = environment(name).value_or("");
  if (!value.empty() && value != "0" && value != "1")
    config::refuse(name, quote(value), "0 or 1", name + "=1");
  return value == "1";
}

// The content of the file that `variable` names. That there is none, or none for this task, is a
// mistake in what was written, not in what there is.
std::string read_pem(const std::string& path, const char* variable) {
  try {
    return read_file(path, kMaxPemBytes);
  } catch (const Error& error) {
    const bool is_mistake =
        error.code() == Code::kNotFound || error.code() == Code::kPermissionDenied;
    fail(is_mistake ? Code::kInvalidArgument : error.code(), variable, ": ", error.message());
  }
}

void warn_once(std::string_view traffic, std::string_view allowed_by) {
  static std::atomic<bool> warned = false;
  if (warned.exchange(true)) return;
  print_notice(str("warning: traffic ", traffic, " is in plain text, beyond this host, as ",
                   allowed_by, " allows: whoever is on that network can read it, change it and ",
                   "take part\n"));
}

}  // namespace

Security::Security(TlsFiles files, bool allow_plaintext, const Environment& environment,
                   std::string_view allowed_by)
    : files_(std::move(files)), plaintext_allowed_by_(allow_plaintext ? allowed_by : "") {
  warn_of_unknown_settings();
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
    for (File& file : all) file.content = read_pem(file.path, file.variable);
    const auto name = [](const File& file) { return str(file.path, " (", file.variable, ")"); };
    identity_.emplace(net::Pem{certificate_, name(all[0])}, net::Pem{key_, name(all[1])},
                      net::Pem{authority_, name(all[2])});
  }
  if (files_.leader_name.empty()) {
    files_.leader_name = environment("COHORT_TLS_LEADER_NAME").value_or("");
  }
  if (switch_of("COHORT_ALLOW_PLAINTEXT", environment))
    plaintext_allowed_by_ = "COHORT_ALLOW_PLAINTEXT=1";
  require_task_ = switch_of("COHORT_TLS_REQUIRE_TASK", environment);
}

void Security::check(std::string_view traffic, bool loopback) const {
  if (encrypted() || loopback) return;
  if (!plaintext_allowed_by_.empty()) return warn_once(traffic, plaintext_allowed_by_);
  fail(Code::kFailedPrecondition, "traffic ", traffic,
       " would be in plain text, beyond this host. Give every task certificates (COHORT_TLS_CERT, "
       "COHORT_TLS_KEY and COHORT_TLS_CA), or set COHORT_ALLOW_PLAINTEXT=1 for all of them if "
       "everybody on the network may be trusted");
}

CertifiedTasks Security::tasks_of(const std::vector<std::string>& names) const {
  return encrypted() ? CertifiedTasks(names, require_task_) : CertifiedTasks();
}

const std::string& Security::name_at(const std::string& host) const {
  return files_.leader_name.empty() ? host : files_.leader_name;
}

net::Stream Security::connect(net::Descriptor socket, net::Stream::End own) const {
  return identity_ ? net::Stream(std::move(socket), *identity_, own)
                   : net::Stream(std::move(socket));
}

CertifiedTasks Security::tasks_of(const net::Stream& peer) const {
  return tasks_of(peer.peer_uris());
}

void Security::check_called(const net::Stream& peer, const std::string& host,
                            std::string_view job_id, std::string_view task) const {
  const CertifiedTasks tasks = tasks_of(peer);
  if (tasks.is_restricted()) return tasks.check(job_id, task);
  check_name(peer, host);
}

void Security::check_name(const net::Stream& peer, const std::string& host) const {
  if (!encrypted()) return;
  const std::string& name = name_at(host);
  if (!peer.peer_is_named(name))
    fail(Code::kPermissionDenied, "its certificate does not carry the name ", name,
         files_.leader_name.empty() ? "" : ", which COHORT_TLS_LEADER_NAME demands");
}

}  // namespace cohort::coordination
