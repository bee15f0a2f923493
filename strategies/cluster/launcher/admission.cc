#include "strategies/cluster/launcher/admission.h"

#include "core/base/quote.h"

namespace cohort::launcher {
namespace {

// Linux gives a process no longer string in its environment.
constexpr size_t kMaxConfigBytes = 128 * 1024;
constexpr size_t kOtherConfigBytes = 128;  // of TF_CONFIG, at most, beside addresses

// In a time that does not tell how much of it is right.
bool is_same_secret(const std::string& given, const std::string& expected) {
  size_t difference = given.size() ^ expected.size();
  for (size_t i = 0; i < given.size(); ++i) {
    const char other = expected.empty() ? '\0' : expected[i % expected.size()];
    difference |= static_cast<unsigned char>(given[i] ^ other);
  }
  return difference == 0;
}

size_t count_tasks(const Node& node) { return 2 + node.workers.size() + node.ps.size(); }

// Of TF_CONFIG: "host:12345", quoted, and a comma for each.
size_t address_bytes(const Node& node) {
  const size_t brackets = node.host.find(':') == std::string::npos ? 0 : 2;
  return count_tasks(node) * (node.host.size() + brackets + 9);
}

}  // namespace

std::string label_of(const Node& node) {
  return node.rank < 0 ? node.name : str("node ", node.rank, " (", node.name, ")");
}

std::optional<Refused> disagreement(const Join& join, const JobRules& rules) {
  const std::string who = label_of(join.node);
  if (join.protocol != kProtocol) {
    return refuse(Code::kFailedPrecondition, who, " speaks version ", join.protocol,
                  " of the protocol, ", rules.place, " version ", kProtocol,
                  ": use the same cohort-run on all nodes");
  }
  if (!is_same_secret(join.job_id, rules.job_id)) {
    return refuse(Code::kPermissionDenied, who, " is of another job than ", rules.place,
                  ": their --job_id differ");
  }
  for (size_t i = 0; i < rules.terms.size(); ++i) {
    const auto& [what, here] = rules.terms[i];
    const bool known = i < join.terms.size() && join.terms[i].first == what;
    const std::string there = known ? join.terms[i].second : "";
    if (there != here) {
      return refuse(Code::kFailedPrecondition, who, " has ", what, quote(there), ", ", rules.place,
                    " has ", what, quote(here), ": all nodes of a job need the same");
    }
  }
  return std::nullopt;
}

std::optional<Refused> excess(const Node& joining, const std::vector<const Node*>& others,
                              const std::string& place) {
  const std::string who = label_of(joining);
  size_t tasks = count_tasks(joining), bytes = kOtherConfigBytes + address_bytes(joining);
  for (const Node* node : others) {
    tasks += count_tasks(*node);
    bytes += address_bytes(*node);
  }
  if (tasks > kMaxTasksOfJob) {
    return refuse(Code::kResourceExhausted, "with ", who, " the job of ", place, " would have ",
                  tasks, " tasks; at most ", kMaxTasksOfJob, " are possible");
  }
  if (bytes > kMaxConfigBytes) {
    return refuse(Code::kResourceExhausted, "with ", who, " the addresses of the ", tasks,
                  " tasks of the job of ", place, " would take ", bytes,
                  " bytes of TF_CONFIG; at most ", kMaxConfigBytes,
                  " are possible: use fewer tasks, or shorter names of hosts (--host)");
  }
  return std::nullopt;
}

}  // namespace cohort::launcher
