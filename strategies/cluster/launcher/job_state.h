#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "strategies/cluster/launcher/job_rules.h"
#include "strategies/cluster/launcher/messages.h"
#include "strategies/cluster/launcher/report_schedule.h"
#include "strategies/cluster/launcher/restart_pause.h"
#include "strategies/cluster/launcher/round_failures.h"

namespace cohort::launcher {

// What the rendezvous knows of a job's nodes, and what it decides: who takes part, when all tasks
// start, end and start again, and how the job ends. No network and no clock: what happens goes in
// by the functions below, each with the present time, and what to send comes out by take_sends().
// Nodes are known by the numbers of their connections.
//
// A job is elastic where fewer nodes than the most suffice and restarts are allowed. Its nodes may
// come and go: a signal to one but the first, which serves the rendezvous, means that this node
// leaves; where one waits and there is room, all tasks are asked to save, and start again with it.
// A node whose tasks fail too often (JobRules::node_failures) leaves, where the others suffice.
class JobState {
 public:
  using Time = std::chrono::steady_clock::time_point;
  using Duration = std::chrono::steady_clock::duration;

  struct Send {
    int node;
    Message message;
  };

  JobState(JobRules rules, Time now);

  // A node that is not known yet; the answer is Notice or Refused. Once refused, it stays unknown.
  // Where another has its place, the answer comes when that one is heard from, or is lost.
  void join(int node, const Join& join, Time now);
  // A message other than Join, a Ping too, from a known node; those that make no sense now are
  // ignored.
  void receive(int node, const Message& message, Time now);
  // A node is gone: `how` says why, `code` is the exit code if this ends the job.
  void lose(int node, const std::string& how, int code, Time now);
  // Ends the job for all nodes.
  void finish(int code, const std::vector<std::string>& lines);
  // To be called at least about every second.
  void tick(Time now);

  // What to send, in this order, since the last call.
  std::vector<Send> take_sends() { return std::exchange(sends_, {}); }
  bool knows(int node) const { return nodes_.contains(node) || applicants_.contains(node); }
  bool is_over() const { return phase_ == Phase::kOver; }

 private:
  enum class Phase { kForming, kRunning, kOver };
  struct Member {
    Node node;
    std::string label;  // for people; with its place in a round
    bool takes_part = false;
    bool trainers_ended = false;
    bool ended = false;
    bool leaves = false;  // when the round is over

    bool trains() const { return node.chief != 0 || !node.workers.empty(); }
    // Not merely for want of any.
    bool workers_ended() const { return trainers_ended && !node.workers.empty(); }
  };
  // A node whose place others have, who may be gone.
  struct Applicant {
    Join join;
    std::set<int> silent;  // those of them who have not been heard from since
  };

  bool is_elastic() const { return rules_.min_nodes < rules_.max_nodes && rules_.restarts > 0; }
  std::optional<Refused> misfit(const Join& join) const;
  std::set<int> in_place_of(const Join& join) const;
  std::optional<Refused> lack_of_place(const Join& join) const;
  std::vector<const Node*> nodes() const;
  void decide(int node, const Join& join, Time now);
  void reconsider_applicants(Time now);
  void maybe_start(Time now);
  bool has_enough(Time now) const;
  // Whether anybody of the nodes that are here would train.
  bool has_trainers() const;
  // What they have instead.
  std::string lack_of_trainers() const;
  void start(Time now);
  void form(size_t enough, Time now);
  std::vector<int> in_order() const;
  void report_progress(Time now);
  std::string labels() const;
  std::string missing() const;

  void note_trouble(int node);
  void pass_on(int from, const Message& message);
  void signalled(int node, const Signal& signal, Time now);
  void trainers_ended(int node, Time now);
  void report_trainers(Time now);
  void ended(int node, const Ended& ended, Time now);
  void lose_member(int node, const std::string& how, int code, Time now);
  void time_out();
  bool all_is_well() const;
  bool may_grow(Time now) const;
  void grow();
  void maybe_conclude(Time now);
  bool nodes_have_changed(Time now) const;
  void conclude(Time now);
  // Lets the node leave that was to blame for too many rounds in a row. The line that says so; ""
  // where there is none.
  std::string expel_culprit();
  bool may_expel(const Member& member) const;
  void dismiss_leaving();
  void restart(bool counts, Time now);

  void send(int node, Message message) { sends_.push_back({node, std::move(message)}); }
  void send_to_all(const Message& message);
  void notify_all(std::vector<std::string> lines) { send_to_all(Notice{std::move(lines)}); }

  const JobRules rules_;
  const std::string run_id_;
  std::map<int, Member> nodes_;  // connections are numbered in the order of joining
  std::map<int, Applicant> applicants_;
  std::vector<Send> sends_;
  Phase phase_ = Phase::kForming;

  // While forming:
  size_t enough_;  // so many nodes start without a last call
  Time give_up_;
  ReportSchedule progress_reports_;
  Time not_before_;  // the next start

  // Of the present or last round:
  int restarts_ = 0;            // of all
  int counted_restarts_ = 0;    // those that are not because nodes have come or gone
  Time last_call_;              // for nodes that are to be in the next one
  std::optional<int> culprit_;  // the node that was to blame for the last rounds, if one was,
  int blamed_rounds_ = 0;       // so many in a row
  RestartPause restart_pause_;
  Time started_;
  std::optional<Time> first_started_;
  ReportSchedule trainer_reports_;  // from when those of a node have ended
  bool timed_out_ = false;
  size_t size_ = 0;
  bool lost_any_ = false;
  bool resizes_ = false;  // it ends because nodes leave or wait to take part
  bool told_to_end_ = false;
  bool failures_count_ = true;
  RoundFailures failures_;
};

}  // namespace cohort::launcher
