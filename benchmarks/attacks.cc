#include "benchmarks/attacks.h"

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <string>

#include "benchmarks/attack_tasks.h"
#include "benchmarks/task_group.h"
#include "core/base/error.h"
#include "strategies/cluster/coordination/limits.h"
#include "strategies/cluster/launcher/reserved_port.h"
#include "strategies/parameter_server/wire.h"
#include "tests/testing/certificates.h"
#include "tests/testing/resources.h"

namespace cohort::benchmarks {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kTurns = 2;
constexpr std::chrono::milliseconds kLookInterval(10);  // at the server's memory

// A server, and clients, at work.
struct Served {
  TaskGroup tasks;
  TaskProcess* server = nullptr;
  std::vector<TaskProcess*> clients;
};

double resident_bytes(const TaskProcess& task) {
  return static_cast<double>(testing::resources_of(std::to_string(task.id())).resident_bytes);
}

int64_t count(const TaskProcess& task, const std::string& said) {
  return std::ranges::count(task.said(), said, &TaskProcess::Line::text);
}

// Lets time pass, and adds what calls took that were under way in it; the most memory that the
// server had.
double watch(Served& served, std::chrono::nanoseconds window, std::vector<double>& calls_us) {
  const Time begin = Clock::now(), end = begin + window;
  double most = 0;
  while (Clock::now() < end) {
    served.tasks.run_for(kLookInterval);
    most = std::max(most, resident_bytes(*served.server));
  }
  served.tasks.wait_until("what was under way has ended", [&] {
    return std::ranges::all_of(served.clients, [&](const TaskProcess* client) {
      return client->said().back().time > end;
    });
  });
  for (const TaskProcess* client : served.clients)
    for (const auto& line : client->said()) {
      const double us = std::atof(line.text.c_str() + line.text.find(' '));
      const std::chrono::duration<double, std::micro> time(us);
      if (line.time > begin && line.time - time < end) calls_us.push_back(us);
    }
  return most;
}

Attacked measure(Served& served, std::chrono::nanoseconds window,
                 const std::function<void()>& attack) {
  served.tasks.wait_until("all clients are served", [&] {
    return std::ranges::none_of(served.clients,
                                [](const TaskProcess* client) { return client->said().empty(); });
  });
  Attacked result;
  TaskProcess* attacker = nullptr;
  double before = 0, most = 0;
  for (int turn = 0; turn < kTurns; ++turn) {
    const double quiet = watch(served, window, result.quiet_us);
    if (turn == 0) before = quiet;
    const size_t earlier = attacker == nullptr ? 0 : attacker->said().size();
    if (attacker == nullptr)
      attacker = &served.tasks.start("the attacker", attack);
    else
      attacker->start();
    served.tasks.wait_until("the attack has begun",
                            [&] { return attacker->said().size() > earlier; });
    const auto begin = Clock::now();
    most = std::max(most, watch(served, window, result.attacked_us));
    result.attack_s += std::chrono::duration<double>(Clock::now() - begin).count();
    attacker->kill_now();
  }
  result.attempts = count(*attacker, "refused") + count(*attacker, "connected");
  result.answered = count(*attacker, "answered");
  result.growth_bytes = most - before;
  return result;
}

ClusterSpec cluster_of(const std::vector<launcher::ReservedPort>& ports) {
  std::vector<std::string> addresses;
  for (const auto& port : ports) addresses.push_back(port.address());
  return ClusterSpec({{"worker", addresses}});
}

std::vector<launcher::ReservedPort> ports_of(int tasks) {
  return std::vector<launcher::ReservedPort>(static_cast<size_t>(tasks));
}

}  // namespace

Attacked parameter_server_under_attack(const AttackOptions& options) {
  const launcher::ReservedPort port;
  const Address address = Address::parse(port.address());
  Served served;
  served.server = &served.tasks.start("ps:0", [&] { serve_parameters(address); });
  for (int i = 0; i < options.clients; ++i) {
    const std::string task = str("worker:", i);
    served.clients.push_back(
        &served.tasks.start(task, [=] { call_parameter_server(address, task); }));
  }
  Attacked result =
      measure(served, options.window, [&] { attack_parameter_server(address, options.pause); });
  result.message_bytes = parameter_server::kMaxMessageBytes;
  served.tasks.end("the clients have ended", served.clients);
  served.tasks.end("the server has ended", {served.server});
  return result;
}

Attacked leader_under_attack(const AttackOptions& options) {
  const auto ports = ports_of(1 + options.clients);
  const ClusterSpec cluster = cluster_of(ports);
  Served served;
  served.server = &served.tasks.start("the leader", [&] { lead(cluster); });
  for (int rank = 1; rank <= options.clients; ++rank)
    served.clients.push_back(&served.tasks.start(str("worker:", rank),
                                                 [&cluster, rank] { call_leader(cluster, rank); }));
  Attacked result = measure(served, options.window,
                            [&] { attack_leader(cluster.address("worker", 0), options.pause); });
  result.message_bytes = coordination::kMaxMessageBytes;
  std::vector<TaskProcess*> all = served.clients;
  all.push_back(served.server);
  served.tasks.end("all have left the job", all);
  return result;
}

Attacked leader_under_flood(const AttackOptions& options) {
  const testing::Certificates certificates;
  certificates.sign("stranger", testing::Certificates::kNames, "other-ca");
  const auto ports = ports_of(options.clients);
  const ClusterSpec cluster = cluster_of(ports);
  Served served;
  for (int rank = 0; rank < options.clients; ++rank)
    served.clients.push_back(&served.tasks.start(
        str("worker:", rank), [&, rank] { train_encrypted(cluster, rank, certificates.files()); }));
  served.server = served.clients[0];
  Attacked result = measure(served, options.window, [&] {
    flood_leader(cluster.address("worker", 0), certificates.files(), certificates.files("stranger"),
                 options.connections_per_s);
  });
  result.message_bytes = coordination::kMaxMessageBytes;
  served.tasks.end("the workers have ended", served.clients);
  return result;
}

}  // namespace cohort::benchmarks
