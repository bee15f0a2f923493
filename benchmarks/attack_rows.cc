// Servers under attack, and their clients, beside a control.
#include <algorithm>
#include <cstdint>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "benchmarks/fault_rows.h"
#include "core/base/error.h"

namespace cohort::benchmarks {
namespace {

std::string attack_settings(const FaultSettings& s) {
  return str(" clients=", s.attack.clients, " attack_ms=", s.attack.pause.count(),
             " own_core=", s.attack.own_core);
}
std::string flood_settings(const FaultSettings& s) {
  return str(" workers=", s.attack.clients, " connections_per_s=", s.attack.connections_per_s,
             " own_core=", s.attack.own_core);
}

// The value that this part of all does not exceed.
double quantile(std::vector<double> values, double part) {
  std::ranges::sort(values);
  return values[static_cast<size_t>(part * static_cast<double>(values.size() - 1))];
}

double mean(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

// How many an attacker keeps busy, and its victim, which does nothing else.
Figures cores_in_control(const AttackTimes& times) {
  return {{"cores_of_attacker", times.attacker_processor_s / times.seconds},
          {"cores_of_control", times.victim_processor_s / times.seconds}};
}

Figures figures_of_attack(const Attacked& found) {
  const double quiet = quantile(found.quiet_us, 0.99),
               control = quantile(found.control.calls_us, 0.99),
               attacked = quantile(found.attack.calls_us, 0.99);
  Figures figures = {{"calls", static_cast<double>(found.attack.calls_us.size())},
                     {"p99_us", quiet},
                     {"p99_us_control", control},
                     {"p99_us_attacked", attacked},
                     {"ratio", attacked / quiet},
                     {"ratio_to_control", attacked / control},
                     {"refused", static_cast<double>(found.attack.attempts)},
                     {"refused_by_control", static_cast<double>(found.control.attempts)}};
  append(figures, cores_in_control(found.control));
  append(figures, {{"growth_mib", found.growth_bytes / (1 << 20)},
                   {"growth_in_messages", found.growth_bytes / found.message_bytes}});
  return figures;
}

Figures flood(const FaultSettings& s) {
  const Attacked found = leader_under_flood(s.attack);
  const int64_t answered = found.attack.answered + found.control.answered;
  if (answered > 0)
    fail(Code::kPermissionDenied, "leaders have answered ", answered, " calls of strangers");
  const double quiet = mean(found.quiet_us), control = mean(found.control.calls_us),
               flooded = mean(found.attack.calls_us);
  const auto connected_per_s = [](const AttackTimes& times) {
    return static_cast<double>(times.attempts) / times.seconds;
  };
  Figures figures = {{"steps", static_cast<double>(found.attack.calls_us.size())},
                     {"step_ms", quiet / 1e3},
                     {"step_ms_control", control / 1e3},
                     {"step_ms_flooded", flooded / 1e3},
                     {"cost", flooded / quiet - 1},
                     {"cost_to_control", flooded / control - 1},
                     {"connected_per_s", connected_per_s(found.attack)},
                     {"connected_per_s_control", connected_per_s(found.control)}};
  append(figures, cores_in_control(found.control));
  append(figures, {{"answered", static_cast<double>(answered)},
                   {"growth_mib", found.growth_bytes / (1 << 20)}});
  return figures;
}

}  // namespace

std::vector<FaultRow> attack_rows() {
  const auto attack_row = [](std::string target, Attacked (*measure)(const AttackOptions&)) {
    return FaultRow{
        "attack", " target=" + std::move(target),
        [measure](const auto& s, auto&) { return figures_of_attack(measure(s.attack)); },
        attack_settings};
  };
  return {attack_row("server", parameter_server_under_attack),
          attack_row("leader", leader_under_attack),
          {"flood", "", [](const auto& s, auto&) { return flood(s); }, flood_settings}};
}

}  // namespace cohort::benchmarks
