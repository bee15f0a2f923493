#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace cohort::benchmarks {

struct AttackOptions {
  int clients = 2;                                            // that are to be served meanwhile
  std::chrono::nanoseconds window = std::chrono::seconds(1);  // of each time that is compared
  std::chrono::milliseconds pause{10};                        // between hostile messages
  int connections_per_s = 100;                                // of a flood
  // An attacker has the last core of this process to itself, and all others share the rest, so that
  // it takes nothing from them but what refusing it takes.
  bool own_core = false;
};

// Times in which an attacker was at work.
struct AttackTimes {
  std::vector<double> calls_us;  // what the clients' calls took
  int64_t attempts = 0;          // of the attacker: messages, or connections
  int64_t answered = 0;          // strangers who got as far as the handler of calls
  double seconds = 0;            // of all these times
  // Of the cores, in all these times, by the attacker and by its victim.
  double attacker_processor_s = 0, victim_processor_s = 0;
};

// What a server and its clients have come through: quiet times, times of an attack and times of the
// control took turns. In the control the same attacker sends the same to a victim of the same make
// on this host that nobody uses: what others suffer then is of the cores that all share, and what
// they suffer besides when their own server is attacked is the server's doing.
struct Attacked {
  std::vector<double> quiet_us;  // what the clients' calls took
  AttackTimes control, attack;
  double growth_bytes = 0;   // of the server's memory, from before the first attack to its most
  double message_bytes = 0;  // what one message to the server may have
};

// Each starts a server, clients, a victim for the control and attackers as processes of this host,
// and ends them. To be used while this process has one thread; the errors are those of TaskGroup,
// and kFailedPrecondition where there is no core for the attacker alone.
//
// Malformed and oversize messages of one client to a parameter server.
Attacked parameter_server_under_attack(const AttackOptions& options);
// The same to the leader of a job, where members count in its store.
Attacked leader_under_attack(const AttackOptions& options);
// Connections of strangers to the leader of synchronous training by mutual TLS; calls are steps.
Attacked leader_under_flood(const AttackOptions& options);

}  // namespace cohort::benchmarks
