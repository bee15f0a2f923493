#include "benchmarks/attacks.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <ctime>
#include <functional>
#include <sched.h>
#include <string>
#include <utility>

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

// Where attackers run, and all others.
struct Cores {
  cpu_set_t of_attackers, of_others;
};

Cores divide_cores(const AttackOptions& options) {
  Cores cores{};
  if (sched_getaffinity(0, sizeof(cpu_set_t), &cores.of_others) != 0)
    fail(Code::kInternal, "the system does not tell which cores there are");
  cores.of_attackers = cores.of_others;
  if (!options.own_core) return cores;
  if (CPU_COUNT(&cores.of_others) < 2)
    fail(Code::kFailedPrecondition,
         "an attacker is to have a core to itself, and this process may use only one");
  int last = CPU_SETSIZE - 1;
  while (!CPU_ISSET(last, &cores.of_others)) --last;
  CPU_ZERO(&cores.of_attackers);
  CPU_SET(last, &cores.of_attackers);
  CPU_CLR(last, &cores.of_others);
  return cores;
}

std::function<void()> on(const cpu_set_t& cores, std::function<void()> body) {
  return [cores, body = std::move(body)] {
    if (sched_setaffinity(0, sizeof(cores), &cores) != 0)
      fail(Code::kInternal, "the system does not let this process choose its cores");
    body();
  };
}

// A server, and clients, at work, and who is beside: first the control's victim, and others that it
// needs.
struct Served {
  explicit Served(const AttackOptions& options) : cores(divide_cores(options)) {}
  TaskProcess& start(std::string name, std::function<void()> body) {
    return tasks.start(std::move(name), on(cores.of_others, std::move(body)));
  }

  const Cores cores;
  TaskGroup tasks;
  TaskProcess* server = nullptr;
  std::vector<TaskProcess*> clients, control;
};

// An attacker, which is started anew for each of its times.
class Attacker {
 public:
  Attacker(Served& served, std::string name, TaskProcess& victim, std::function<void()> attack)
      : served_(served), name_(std::move(name)), victim_(victim), attack_(std::move(attack)) {}

  // Attacks for so long; the most memory that the server of `served` had.
  double run(std::chrono::nanoseconds window);
  // Of all times so far.
  AttackTimes times() const;

 private:
  void start();

  Served& served_;
  const std::string name_;
  TaskProcess& victim_;
  const std::function<void()> attack_;
  TaskProcess* task_ = nullptr;
  AttackTimes times_;
};

double resident_bytes(const TaskProcess& task) {
  return static_cast<double>(testing::resources_of(std::to_string(task.id())).resident_bytes);
}

// What a process has had of the cores so far.
double processor_s(const TaskProcess& task) {
  clockid_t clock = 0;
  timespec time{};
  if (clock_getcpuclockid(task.id(), &clock) != 0 || clock_gettime(clock, &time) != 0)
    fail(Code::kInternal, "the system does not tell how long ", task.name(), " has been running");
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
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

void Attacker::start() {
  const size_t earlier = task_ == nullptr ? 0 : task_->said().size();
  if (task_ == nullptr)
    task_ = &served_.tasks.start(name_, on(served_.cores.of_attackers, attack_));
  else
    task_->start();
  served_.tasks.wait_until(name_ + " has begun", [&] { return task_->said().size() > earlier; });
}

double Attacker::run(std::chrono::nanoseconds window) {
  start();
  const auto begin = Clock::now();
  const double own = processor_s(*task_), its = processor_s(victim_);
  const double most = watch(served_, window, times_.calls_us);
  times_.attacker_processor_s += processor_s(*task_) - own;
  times_.victim_processor_s += processor_s(victim_) - its;
  times_.seconds += std::chrono::duration<double>(Clock::now() - begin).count();
  task_->kill_now();
  return most;
}

AttackTimes Attacker::times() const {
  AttackTimes times = times_;
  times.attempts = count(*task_, "refused") + count(*task_, "connected");
  times.answered = count(*task_, "answered");
  return times;
}

bool is_up(const TaskProcess* task) { return !task->said().empty(); }

// Attacks the server, and the first of `served.control`, at their addresses.
Attacked measure(Served& served, std::chrono::nanoseconds window, const Address& server,
                 const Address& control, const std::function<void(const Address&)>& attack) {
  served.tasks.wait_until("all clients are served, and the control is up", [&] {
    return is_up(served.server) && std::ranges::all_of(served.clients, is_up) &&
           std::ranges::all_of(served.control, is_up);
  });
  Attacked result;
  Attacker on_server(served, "the attacker", *served.server, [&] { attack(server); });
  Attacker on_control(served, "the control's attacker", *served.control[0],
                      [&] { attack(control); });
  double before = 0, most = 0;
  for (int turn = 0; turn < kTurns; ++turn) {
    const double quiet = watch(served, window, result.quiet_us);
    if (turn == 0) before = quiet;
    // Neither always follows the quiet.
    std::array<Attacker*, 2> order = {&on_control, &on_server};
    if (turn % 2 == 1) std::ranges::reverse(order);
    for (Attacker* attacker : order) most = std::max(most, attacker->run(window));
  }
  result.control = on_control.times();
  result.attack = on_server.times();
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

// A job whose leader nobody asks for anything; one of a single task would have no leader.
constexpr int kIdleTasks = 2;
std::vector<TaskProcess*> start_idle_job(Served& served, const ClusterSpec& cluster,
                                         const TlsFiles& tls) {
  std::vector<TaskProcess*> started;
  for (int rank = 0; rank < kIdleTasks; ++rank)
    started.push_back(
        &served.start(str("the control's worker:", rank), [=] { attend(cluster, rank, tls); }));
  return started;
}

}  // namespace

Attacked parameter_server_under_attack(const AttackOptions& options) {
  const launcher::ReservedPort port, control_port;
  const Address address = Address::parse(port.address()),
                control = Address::parse(control_port.address());
  Served served(options);
  served.server = &served.start("ps:0", [=] { serve_parameters(address); });
  served.control = {
      &served.start("the control's ps:0", [=] { serve_parameters(control); }),
      &served.start("the control's worker:0", [=] { own_shard(control, "worker:0"); })};
  for (int i = 0; i < options.clients; ++i) {
    const std::string task = str("worker:", i);
    served.clients.push_back(&served.start(task, [=] { call_parameter_server(address, task); }));
  }
  Attacked result = measure(served, options.window, address, control, [&](const Address& victim) {
    attack_parameter_server(victim, options.pause);
  });
  result.message_bytes = parameter_server::kMaxMessageBytes;
  served.tasks.end("the clients have ended", served.clients);
  served.tasks.end("the control's client has ended", {served.control[1]});
  served.tasks.end("the servers have ended", {served.server, served.control[0]});
  return result;
}

Attacked leader_under_attack(const AttackOptions& options) {
  const auto ports = ports_of(1 + options.clients), control_ports = ports_of(kIdleTasks);
  const ClusterSpec cluster = cluster_of(ports), control = cluster_of(control_ports);
  Served served(options);
  served.server = &served.start("the leader", [=] { attend(cluster, 0); });
  served.control = start_idle_job(served, control, {});
  for (int rank = 1; rank <= options.clients; ++rank)
    served.clients.push_back(
        &served.start(str("worker:", rank), [=] { call_leader(cluster, rank); }));
  Attacked result =
      measure(served, options.window, cluster.address("worker", 0), control.address("worker", 0),
              [&](const Address& victim) { attack_leader(victim, options.pause); });
  result.message_bytes = coordination::kMaxMessageBytes;
  std::vector<TaskProcess*> all = served.clients;
  all.push_back(served.server);
  served.tasks.end("all have left the job", all);
  served.tasks.end("all have left the control's job", served.control);
  return result;
}

Attacked leader_under_flood(const AttackOptions& options) {
  const testing::Certificates certificates;
  certificates.sign("stranger", testing::Certificates::kNames, "other-ca");
  const TlsFiles own = certificates.files(), stranger = certificates.files("stranger", "both-cas");
  const auto ports = ports_of(options.clients), control_ports = ports_of(kIdleTasks);
  const ClusterSpec cluster = cluster_of(ports), control = cluster_of(control_ports);
  Served served(options);
  for (int rank = 0; rank < options.clients; ++rank)
    served.clients.push_back(
        &served.start(str("worker:", rank), [=] { train_encrypted(cluster, rank, own); }));
  served.server = served.clients[0];
  served.control = start_idle_job(served, control, own);
  Attacked result = measure(served, options.window, cluster.address("worker", 0),
                            control.address("worker", 0), [&](const Address& victim) {
                              flood_leader(victim, own, stranger, options.connections_per_s);
                            });
  result.message_bytes = coordination::kMaxMessageBytes;
  served.tasks.end("the workers have ended", served.clients);
  served.tasks.end("all have left the control's job", served.control);
  return result;
}

}  // namespace cohort::benchmarks
