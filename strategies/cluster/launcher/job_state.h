#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "strategies/cluster/launcher/messages.h"
#include "strategies/cluster/launcher/restart_pause.h"

namespace cohort::launcher {

// What the rendezvous knows of a job's nodes, and what it decides: who takes part, when all tasks
// start, end and start again, and how the job ends. No network and no clock: what happens goes in
// by the functions below, each with the present time, and what to send comes out by take_sends().
// Nodes are known by the numbers of their connections.
class JobState {
 public:
  using Time = std::chrono::steady_clock::time_point;
  using Duration = std::chrono::steady_clock::duration;

  struct Rules {
    size_t min_nodes = 1, max_nodes = 1;
    int restarts = 0;
    Duration join_timeout{}, last_call{};
    Duration timeout{};       // from the first start on; 0: none
    std::string job_id;       // --job_id
    std::string run_id = {};  // COHORT_JOB_ID of all tasks; "": a random one
    std::vector<std::pair<std::string, std::string>> terms;  // as in Join
    std::string place;                                       // of the rendezvous, for people
  };
  struct Send {
    int node;
    Message message;
  };

  JobState(Rules rules, Time now);

  // A node that is not known yet; the answer is Notice or Refused. Once refused, it stays unknown.
  void join(int node, const Join& join, Time now);
  // A message other than Join from a known node; those that make no sense now are ignored.
  void receive(int node, const Message& message, Time now);
  // A node is gone: `how` says why, `code` is the exit code if this ends the job.
  void lose(int node, const std::string& how, int code, Time now);
  // Ends the job for all nodes.
  void finish(int code, const std::vector<std::string>& lines);
  // To be called at least about every second.
  void tick(Time now);

  // What to send, in this order, since the last call.
  std::vector<Send> take_sends() { return std::exchange(sends_, {}); }
  bool knows(int node) const { return nodes_.contains(node); }
  bool is_over() const { return phase_ == Phase::kOver; }

 private:
  enum class Phase { kForming, kRunning, kOver };
  struct Member {
    Node node;
    std::string label;  // for people; with its place in a round
    bool takes_part = false;
    bool trainers_ended = false;
    bool ended = false;
  };
  struct Blame {
    Failure failure;
    std::string label;
    size_t trouble;  // the place of its node among those that told of trouble
  };

  std::optional<Refused> refusal(const Join& join) const;
  void maybe_start(Time now);
  void start(Time now);
  void form(size_t enough, Time now);
  std::vector<int> in_order() const;
  void report_progress(Time now);
  std::string labels() const;
  std::string missing() const;

  void note_trouble(int node);
  void pass_on(int from, const Message& message);
  void signalled(int node, const Signal& signal);
  void trainers_ended(int node);
  void ended(int node, const Ended& ended, Time now);
  void blame(Blame blame);
  static std::string describe(const Blame& blame);
  void time_out();
  void maybe_conclude(Time now);
  void conclude(Time now);
  void restart(Time now);
  std::vector<std::string> summary() const;

  void send(int node, Message message) { sends_.push_back({node, std::move(message)}); }
  void send_to_all(const Message& message);
  void notify_all(std::vector<std::string> lines) { send_to_all(Notice{std::move(lines)}); }

  const Rules rules_;
  const std::string run_id_;
  std::map<int, Member> nodes_;  // connections are numbered in the order of joining
  std::vector<Send> sends_;
  Phase phase_ = Phase::kForming;

  // While forming:
  size_t enough_;  // so many nodes start without a last call
  Time give_up_, last_call_, next_report_;
  Time not_before_;  // the next start

  // Of the present or last round:
  int restarts_ = 0;
  RestartPause restart_pause_;
  Time started_;
  std::optional<Time> first_started_;
  bool timed_out_ = false;
  size_t size_ = 0;
  bool lost_any_ = false;
  bool told_to_end_ = false;
  bool failures_count_ = true;
  std::vector<int> troubled_;  // nodes, in the order in which they told of trouble
  std::optional<Blame> blame_;
  std::vector<std::string> ends_;  // of tasks that are not to blame
};

}  // namespace cohort::launcher
