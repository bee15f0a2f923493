#pragma once

#include <chrono>
#include <string>

#include "strategies/cluster/address.h"
#include "strategies/cluster/cluster_spec.h"
#include "strategies/cluster/coordination/security.h"

// What the processes of an attack do, each until SIGTERM. Clusters have workers alone, of which the
// first leads.
namespace cohort::benchmarks {

// --- Who is attacked, and who is to be served meanwhile: these say "call MICROSECONDS" for each of
// their calls, a millisecond after the one before. kDataLoss when something of theirs was changed
// by another.

// Says "up" when it serves.
void serve_parameters(const Address& address);
// Each call pushes to a shard of the task's own, and pulls it.
void call_parameter_server(const Address& server, const std::string& task);
// Only has such a shard there. Says "up" then.
void own_shard(const Address& server, const std::string& task);

// Is in a job, which the first task leads, and does nothing else. Says "up" when all have come.
void attend(const ClusterSpec& cluster, int rank, const TlsFiles& tls = {});
// Each call counts in the store that the leader keeps.
void call_leader(const ClusterSpec& cluster, int rank);

// A worker of synchronous training by mutual TLS; its calls are steps, without a pause.
void train_encrypted(const ClusterSpec& cluster, int rank, const TlsFiles& tls);

// --- Who attacks.

// One client sends what is malformed or too large, over and over, each a call of its own. Says
// "refused" when one was refused; kInternal for one that was accepted or not answered.
void attack_parameter_server(const Address& server, std::chrono::milliseconds pause);
void attack_leader(const Address& leader, std::chrono::milliseconds pause);

// Connects with a leader that speaks TLS so many times a second, in turns: says nothing; says
// random bytes; makes a call in plain text; makes one with the certificate of `stranger`, which the
// leader does not accept. Says "connected" each time, and "answered" where it got as far as the
// handler of calls, which answers each. kInternal when a call with `own` is not answered, either.
void flood_leader(const Address& leader, const TlsFiles& own, const TlsFiles& stranger,
                  int connections_per_s);

}  // namespace cohort::benchmarks
