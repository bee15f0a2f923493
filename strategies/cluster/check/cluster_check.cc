#include "strategies/cluster/check/cluster_check.h"

#include <algorithm>
#include <array>
#include <utility>

#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "core/base/quote.h"
#include "strategies/cluster/coordination/endpoint.h"
#include "strategies/cluster/coordination/job_id.h"
#include "strategies/cluster/coordination/leader_question.h"
#include "strategies/cluster/coordination/own_host.h"
#include "strategies/cluster/coordination/roster.h"
#include "strategies/cluster/coordination/security.h"
#include "strategies/cluster/settings.h"
#include "strategies/collective/settings.h"

namespace cohort {
namespace {

using Json = nlohmann::json;
using Row = std::array<std::string, 3>;

std::string aligned(const std::vector<Row>& rows) {
  std::array<size_t, 3> width{};
  for (const Row& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) width[i] = std::max(width[i], row[i].size());
  }
  std::string out;
  for (const Row& row : rows) {
    out += row[0] + std::string(width[0] - row[0].size() + 2, ' ') + row[1] +
           std::string(width[1] - row[1].size() + 2, ' ') + row[2] + "\n";
  }
  return out;
}

std::string own_name(const ClusterResolver& resolver) {
  if (resolver.task_type().empty() || !resolver.task_id()) return "";
  return str(resolver.task_type(), ":", *resolver.task_id());
}

// A parameter server has no place among the workers.
void find_world(ClusterCheck& check) {
  const ClusterResolver& resolver = *check.cluster.resolver;
  if (resolver.task_type() == "ps") return;
  try {
    check.world = resolver.world();
  } catch (const Error& error) {
    check.refusal = error;
  }
}

// Why there is no leader, where the resolver says.
std::string why_no_leader(const ClusterResolver& resolver) {
  for (const Fact& fact : resolver.facts()) {
    if (fact.name == "leader") return fact.source;
  }
  return str(resolver.launcher(), " does not tell where it is");
}

std::vector<ClusterCheck::Peer> peers_of(const ClusterResolver& resolver) {
  std::vector<ClusterCheck::Peer> peers;
  const ClusterSpec& spec = resolver.cluster_spec();
  for (const std::string& job : spec.jobs()) {
    for (const int id : spec.task_ids(job)) {
      peers.push_back({str(job, ":", id), spec.address(job, id), {}});
    }
  }
  if (!spec.empty()) return peers;
  if (const auto leader = resolver.leader()) {
    peers.push_back({"leader", leader, {}});
  } else if (resolver.world().size > 1) {
    peers.push_back({"leader", {}, {.detail = why_no_leader(resolver)}});
  }
  return peers;
}

bool is_own(const ClusterCheck::Peer& peer, const ClusterResolver& resolver) {
  if (peer.name == "leader") return resolver.world().rank == 0;
  return peer.name == own_name(resolver);
}

// Asks the leader what a task is asked for that joins, where tasks join one: those of a cluster
// with parameter servers do not.
Examination examination_by_leader(const ClusterCheck& check, const std::string& job_id,
                                  const coordination::Security& security) {
  const ClusterResolver& resolver = *check.cluster.resolver;
  if (!check.world || !resolver.leader() || resolver.cluster_spec().num_tasks("ps") > 0) return {};
  return [roster = coordination::Roster(resolver), job_id, security](
             const Address& address, Reachability reached, auto deadline) -> Reachability {
    if (address != *roster.leader()) return reached;
    try {
      reached.detail += "; " + coordination::ask_leader(roster, job_id, security, deadline);
      return reached;
    } catch (const Error& error) {
      const bool is_final = error.code() != Code::kUnavailable;
      return {false, error.message(), is_final ? std::optional(error) : std::nullopt};
    }
  };
}

void try_peers(std::vector<ClusterCheck::Peer>& peers, const ClusterResolver& resolver,
               std::chrono::milliseconds timeout, const Examination& examine) {
  std::vector<Address> addresses;
  std::vector<ClusterCheck::Peer*> others;
  for (ClusterCheck::Peer& peer : peers) {
    if (!peer.address) continue;
    if (is_own(peer, resolver)) {
      peer.reachability = probe_listening(*peer.address);
    } else {
      addresses.push_back(*peer.address);
      others.push_back(&peer);
    }
  }
  auto results = probe(addresses, timeout, examine);
  for (size_t i = 0; i < others.size(); ++i) others[i]->reachability = std::move(results[i]);
}

std::vector<Fact> settings_in(const Environment& environment) {
  std::vector<Fact> found;
  for (const std::string_view setting : settings()) {
    const std::string name(setting), value = environment(name).value_or("");
    if (value.empty()) continue;
    found.push_back(
        {name, name == "COHORT_JOB_ID" ? "set, not shown" : printable(value), "environment"});
  }
  return found;
}

// Whether the task connects to others: an evaluator watches files.
bool has_traffic(const ClusterResolver& resolver) {
  if (resolver.task_type() == "evaluator") return false;
  const int tasks = resolver.cluster_spec().num_tasks();
  return tasks > 0 ? tasks > 1 : resolver.world().size > 1;
}

// Up to the first task that is on another host, or of which nobody knows where it is.
void check_traffic(const std::vector<ClusterCheck::Peer>& peers,
                   const coordination::Security& security) {
  for (const ClusterCheck::Peer& peer : peers) {
    if (!peer.address) continue;
    const bool loopback = coordination::all_loopback(coordination::resolve(*peer.address));
    security.check(str("with ", peer.name, " at ", peer.address->text()), loopback);
    if (!loopback) return;
  }
}

std::optional<Error> refusal_of(const ClusterCheck& check, const coordination::Security& security) {
  const ClusterResolver& resolver = *check.cluster.resolver;
  if (!has_traffic(resolver)) return {};
  try {
    if (resolver.task_type() != "ps") check_own_name(resolver);
    check_traffic(check.peers, security);
  } catch (const Error& error) {
    // Of a name that is not known it is said already that it cannot be reached.
    if (error.code() != Code::kUnavailable) return error;
  }
  for (const ClusterCheck::Peer& peer : check.peers)
    if (peer.reachability.refusal) return peer.reachability.refusal;
  return {};
}

}  // namespace

ClusterCheck check_cluster(ResolvedCluster cluster, std::chrono::milliseconds timeout,
                           const Environment& environment) {
  const coordination::Security security({}, false, environment);
  const std::string job_id = coordination::given_job_id(environment);
  check_collective_settings(environment);
  ClusterCheck check{.cluster = std::move(cluster), .settings = settings_in(environment)};
  find_world(check);
  if (timeout.count() == 0) return check;
  check.peers = peers_of(*check.cluster.resolver);
  try_peers(check.peers, *check.cluster.resolver, timeout,
            examination_by_leader(check, job_id, security));
  if (!check.refusal) check.refusal = refusal_of(check, security);
  return check;
}

std::string ClusterCheck::table() const {
  const ClusterResolver& resolver = *cluster.resolver;
  std::string out = str("cluster from ", resolver.launcher(), ": ", cluster.reason, "\n");
  std::string self = own_name(resolver);
  if (world) self += str(self.empty() ? "" : ", ", "rank ", world->rank, " of ", world->size);
  const auto leader = resolver.leader();
  out += str("this is ", self.empty() ? "a task without a name" : self,
             leader ? str(", led from ", leader->text()) : "", "\n");
  std::vector<Row> facts = {{"WHAT", "VALUE", "FROM"}};
  for (const auto& known : {resolver.facts(), settings})
    for (const Fact& fact : known) facts.push_back({fact.name, fact.value, fact.source});
  if (facts.size() > 1) out += "\n" + aligned(facts);
  if (!peers.empty()) {
    std::vector<Row> rows = {{"TASK", "ADDRESS", "REACHED"}};
    for (const Peer& peer : peers) {
      const Reachability& result = peer.reachability;
      rows.push_back({peer.name, peer.address ? peer.address->text() : "not known",
                      str(result.reachable ? "yes, " : "no, ", result.detail)});
    }
    out += "\n" + aligned(rows);
  }
  return out;
}

std::string ClusterCheck::json() const {
  const ClusterResolver& resolver = *cluster.resolver;
  Json json = {{"launcher", resolver.launcher()},
               {"reason", cluster.reason},
               {"cluster", Json::parse(resolver.cluster_spec().json())},
               {"facts", Json::array()},
               {"settings", Json::object()},
               {"peers", Json::array()}};
  if (!resolver.task_type().empty()) json["task"]["type"] = resolver.task_type();
  if (resolver.task_id()) json["task"]["index"] = *resolver.task_id();
  if (world) json["world"] = {{"rank", world->rank}, {"size", world->size}};
  if (const auto leader = resolver.leader()) json["leader"] = leader->text();
  for (const Fact& fact : resolver.facts()) {
    json["facts"].push_back({{"name", fact.name}, {"value", fact.value}, {"source", fact.source}});
  }
  for (const Fact& setting : settings) json["settings"][setting.name] = setting.value;
  if (refusal) json["refusal"] = refusal->message();
  for (const Peer& peer : peers) {
    json["peers"].push_back({{"name", peer.name},
                             {"address", peer.address ? Json(peer.address->text()) : Json()},
                             {"reachable", peer.reachability.reachable},
                             {"detail", peer.reachability.detail}});
  }
  return json.dump(2, ' ', true, Json::error_handler_t::replace);
}

std::vector<std::string> ClusterCheck::unreachable() const {
  std::vector<std::string> names;
  for (const Peer& peer : peers) {
    if (!peer.reachability.reachable) names.push_back(peer.name);
  }
  return names;
}

}  // namespace cohort
