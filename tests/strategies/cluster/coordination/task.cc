// A task of a job that does what it is told, line by line on standard input, and tells how it went.
// Its cluster comes from the environment. Arguments: the times of MembershipOptions in
// milliseconds, as NAME=NUMBER.
#include <chrono>
#include <csignal>
#include <iostream>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <sys/prctl.h>
#include <thread>

#include "core/base/error.h"
#include "core/base/program.h"
#include "strategies/cluster/coordination/membership.h"
#include "strategies/cluster/resolve_cluster.h"

namespace {

using cohort::Membership;
using std::chrono::milliseconds;

// Whole lines, whatever thread they come from.
void say(const std::string& line) { std::cout << line + "\n" << std::flush; }

cohort::MembershipOptions options(int count, char** arguments) {
  std::map<std::string, int> values;
  for (int i = 1; i < count; ++i) {
    const std::string argument = arguments[i];
    const size_t equals = argument.find('=');
    values[argument.substr(0, equals)] = std::stoi(argument.substr(equals + 1));
  }
  cohort::MembershipOptions options;
  if (values.count("join")) options.join_timeout = milliseconds(values["join"]);
  if (values.count("heartbeat")) options.heartbeat = milliseconds(values["heartbeat"]);
  if (values.count("suspect")) options.suspect_after = milliseconds(values["suspect"]);
  if (values.count("dead")) options.dead_after = milliseconds(values["dead"]);
  return options;
}

// Steps of `pause` milliseconds each, from `done` on, until the job agrees to stop.
void train(Membership& member, int64_t done, int pause) {
  for (;;) {
    std::this_thread::sleep_for(milliseconds(pause));
    ++done;
    const auto stop = member.stop_step(done);
    if (stop && done >= *stop) return say(cohort::str("stopped after ", done, " at ", *stop));
  }
}

void obey(Membership& member, const std::string& line) {
  std::istringstream words(line);
  std::string verb, name;
  int64_t time = 0;
  words >> verb >> name >> time;
  if (verb == "barrier") member.barrier(name, milliseconds(time));
  if (verb == "set") member.store().set(name, std::to_string(time));
  if (verb == "get") say("value " + member.store().get(name, milliseconds(time)));
  if (verb == "report") member.report(cohort::Error(cohort::Code::kInternal, name));
  if (verb == "announce") member.announce_stop();
  if (verb == "train") train(member, std::stoll(name), static_cast<int>(time));
  if (verb == "leave") member.leave(milliseconds(std::stoi(name)));
  say("done " + line);
}

void run(int count, char** arguments) {
  const auto cluster = cohort::resolve_cluster();
  const auto member = Membership::join(*cluster.resolver, options(count, arguments));
  say(cohort::str("joined ", member->job_id(), " epoch ", member->epoch()));
  const auto watch = member->on_failure(
      [](const cohort::Error& error) { say(cohort::str("failed ", error.what())); });
  std::string line;
  while (std::getline(std::cin, line) && line != "end") {
    try {
      obey(*member, line);
    } catch (const cohort::Error& error) {
      say(cohort::str("error in ", line, ": ", error.what()));
    }
  }
}

}  // namespace

int main(int count, char** arguments) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  return cohort::run_main([&] { run(count, arguments); });
}
