#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace cohort::benchmarks {

struct AttackOptions {
  int clients = 2;  // that are to be served meanwhile
  std::chrono::nanoseconds window =
      std::chrono::seconds(1);          // of each of the times that are compared
  std::chrono::milliseconds pause{10};  // between hostile messages
  int connections_per_s = 100;          // of a flood
};

// What a server and its clients have come through: times without and with an attacker took turns.
struct Attacked {
  std::vector<double> quiet_us, attacked_us;  // what the clients' calls took
  int64_t attempts = 0;                       // of the attacker: messages, or connections
  double attack_s = 0;                        // for so long
  int64_t answered = 0;                       // strangers who got as far as the handler of calls
  double growth_bytes = 0;   // of the server's memory, from before the first attack to its most
  double message_bytes = 0;  // what one message to the server may have
};

// Each starts a server, clients and an attacker as processes of this host, and ends them. To be
// used while this process has one thread; the errors are those of TaskGroup.
//
// Malformed and oversize messages of one client to a parameter server.
Attacked parameter_server_under_attack(const AttackOptions& options);
// The same to the leader of a job, where members count in its store.
Attacked leader_under_attack(const AttackOptions& options);
// Connections of strangers to the leader of synchronous training by mutual TLS; calls are steps.
Attacked leader_under_flood(const AttackOptions& options);

}  // namespace cohort::benchmarks
