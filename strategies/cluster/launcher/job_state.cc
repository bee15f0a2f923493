#include "strategies/cluster/launcher/job_state.h"

#include <algorithm>
#include <climits>
#include <csignal>

#include "core/base/comma_separated.h"
#include "core/base/error.h"
#include "strategies/cluster/coordination/random_ids.h"
#include "strategies/cluster/launcher/admission.h"
#include "strategies/cluster/launcher/exit_status.h"
#include "strategies/cluster/launcher/options.h"

namespace cohort::launcher {
namespace {

std::string count(size_t number, const char* what) {
  return str(number, " ", what, number == 1 ? "" : "s");
}

int64_t seconds(JobState::Duration duration) {
  return std::chrono::ceil<std::chrono::seconds>(duration).count();
}

// What people mean for the whole job, on whichever node.
bool is_of_people(int signal) { return signal == SIGINT || signal == SIGQUIT; }

}  // namespace

JobState::JobState(JobRules rules, Time now)
    : rules_(std::move(rules)),
      run_id_(rules_.run_id.empty() ? coordination::random_job_id() : rules_.run_id),
      enough_(rules_.max_nodes) {
  form(rules_.max_nodes, now);
}

// Joining.

std::optional<Refused> JobState::misfit(const Join& join) const {
  auto refused = disagreement(join, rules_);
  if (!refused && phase_ == Phase::kOver)
    refused = refuse(Code::kFailedPrecondition, "the job of ", rules_.place, " is over");
  return refused;
}

// The nodes one of which would have to go first; none: it has a place.
std::set<int> JobState::in_place_of(const Join& join) const {
  std::set<int> all;
  for (const auto& [id, member] : nodes_) {
    if (join.node.rank >= 0 && member.node.rank == join.node.rank) return {id};
    all.insert(id);
  }
  return nodes_.size() < rules_.max_nodes ? std::set<int>() : all;
}

std::optional<Refused> JobState::lack_of_place(const Join& join) const {
  const std::set<int> others = in_place_of(join);
  if (others.empty()) return std::nullopt;
  const std::string who = label_of(join.node);
  const Node& other = nodes_.at(*others.begin()).node;
  if (join.node.rank >= 0 && other.rank == join.node.rank) {
    return refuse(Code::kAlreadyExists, who, " has --node_rank=", join.node.rank,
                  ", which is taken by ", other.name, " at ", other.host);
  }
  return refuse(Code::kFailedPrecondition, who, " is one too many: the job of ", rules_.place,
                " has its ", count(nodes_.size(), "node"), ", ", labels());
}

std::vector<const Node*> JobState::nodes() const {
  std::vector<const Node*> all;
  for (const auto& [id, member] : nodes_) all.push_back(&member.node);
  return all;
}

void JobState::join(int node, const Join& join, Time now) {
  std::set<int> others = in_place_of(join);
  if (others.empty() || misfit(join)) {
    decide(node, join, now);
  } else {
    applicants_[node] = {join, std::move(others)};
  }
}

void JobState::decide(int node, const Join& join, Time now) {
  auto refused = misfit(join);
  if (!refused) refused = lack_of_place(join);
  if (!refused) refused = excess(join.node, nodes(), rules_.place);
  if (refused) {
    send(node, std::move(*refused));
    return;
  }
  nodes_[node] = {.node = join.node, .label = label_of(join.node)};
  last_call_ = now + rules_.last_call;
  if (phase_ == Phase::kRunning) {
    send(node, Notice{{str("the job runs on ", count(size_, "node"), " already; ",
                           nodes_[node].label, " waits for its next start")}});
    return;
  }
  send(node, Notice{});
  maybe_start(now);
}

// Those are decided on whose place is free, or whose others have all been heard from, and all where
// a decision ends the job.
void JobState::reconsider_applicants(Time now) {
  for (auto& [node, applicant] : std::exchange(applicants_, {})) {
    const bool is_over = phase_ == Phase::kOver;
    if (is_over || applicant.silent.empty() || in_place_of(applicant.join).empty()) {
      decide(node, applicant.join, now);
    } else {
      applicants_[node] = applicant;
    }
  }
}

void JobState::form(size_t enough, Time now) {
  phase_ = Phase::kForming;
  enough_ = enough;
  give_up_ = now + rules_.join_timeout;
  last_call_ = now + rules_.last_call;
  progress_reports_ = ReportSchedule::steady();
  progress_reports_.begin(now);
}

void JobState::maybe_start(Time now) {
  if (now < not_before_) return;
  const bool can_work = nodes_.size() >= rules_.min_nodes && has_trainers();
  if (has_enough(now) && can_work) {
    start(now);
  } else if (nodes_.size() >= rules_.max_nodes && !can_work) {
    finish(exit_code(Code::kInvalidArgument), {lack_of_trainers()});
  } else if (!can_work && now >= give_up_) {
    finish(exit_code(Code::kDeadlineExceeded),
           {str("giving up after ", seconds(rules_.join_timeout),
                " s (--join_timeout): ", missing())});
  } else if (progress_reports_.take(now)) {
    report_progress(now);
  }
}

bool JobState::has_enough(Time now) const {
  const size_t size = nodes_.size();
  return size >= enough_ || (size >= rules_.min_nodes && now >= last_call_);
}

bool JobState::has_trainers() const {
  return std::any_of(nodes_.begin(), nodes_.end(),
                     [](const auto& entry) { return entry.second.trains(); });
}

std::string JobState::lack_of_trainers() const {
  const auto own = [&](int id) {
    const Member& member = nodes_.at(id);
    return str(member.label, " has --workers=0 --ps=", member.node.ps.size());
  };
  return str("nobody is there to train: ", comma_separated(in_order(), own),
             "; expected --workers=1 or more on one node at least, or --chief on all");
}

std::vector<int> JobState::in_order() const {
  std::vector<int> order;
  for (const auto& [id, member] : nodes_) order.push_back(id);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
    const auto rank = [&](int id) {
      const int given = nodes_.at(id).node.rank;
      return given < 0 ? INT_MAX : given;
    };
    return rank(a) < rank(b);
  });
  return order;
}

void JobState::start(Time now) {
  phase_ = Phase::kRunning;
  started_ = now;
  last_call_ = now + rules_.last_call;
  if (!first_started_) first_started_ = now;
  size_ = nodes_.size();
  lost_any_ = resizes_ = told_to_end_ = false;
  failures_count_ = true;
  failures_ = {};
  trainer_reports_ = {};

  Round round = {.restart = restarts_, .job_id = run_id_};
  const std::vector<int> order = in_order();
  for (const int id : order) round.nodes.push_back(nodes_[id].node);
  for (size_t i = 0; i < order.size(); ++i) {
    Member& member = nodes_[order[i]];
    member = {.node = member.node, .takes_part = true};
    member.label = str("node ", i, " (", member.node.name, ")");
    round.index = static_cast<int>(i);
    send(order[i], Start{round});
  }
}

std::string JobState::labels() const {
  return comma_separated(nodes_, [](const auto& node) { return node.second.label; });
}

std::string JobState::missing() const {
  std::vector<bool> has_rank(rules_.max_nodes);
  bool all_have_ranks = true, any_chose = false;  // 0 is also the rank of whoever serves
  for (const auto& [id, member] : nodes_) {
    const int rank = member.node.rank;
    if (rank >= 0 && static_cast<size_t>(rank) < has_rank.size()) has_rank[rank] = true;
    all_have_ranks &= rank >= 0;
    any_chose |= rank > 0;
  }
  const size_t wanted = std::max(rules_.min_nodes, std::min(enough_, rules_.max_nodes));
  std::string text =
      str(nodes_.size(), " of ", rules_.min_nodes < wanted ? str(rules_.min_nodes, " to ") : "",
          wanted, wanted == 1 ? " node is" : " nodes are", " here (", labels(), ")");
  if (nodes_.size() >= rules_.min_nodes && !has_trainers()) text += "; " + lack_of_trainers();
  if (!all_have_ranks || !any_chose) return text;
  std::vector<size_t> ranks;
  for (size_t rank = 0; rank < has_rank.size(); ++rank)
    if (!has_rank[rank]) ranks.push_back(rank);
  return str(text, "; missing: --node_rank ", comma_separated(ranks));
}

void JobState::report_progress(Time now) {
  const bool may_start = nodes_.size() >= rules_.min_nodes && has_trainers();
  notify_all({str("waiting for nodes: ", missing(), "; ",
                  may_start ? "starting without more in " : "giving up in ",
                  seconds((may_start ? last_call_ : give_up_) - now), " s")});
}

// Running.

void JobState::receive(int node, const Message& message, Time now) {
  for (auto& [id, applicant] : applicants_) applicant.silent.erase(node);
  reconsider_applicants(now);
  if (!nodes_.contains(node) || phase_ == Phase::kOver) return;
  if (const auto* signal = std::get_if<Signal>(&message)) {
    signalled(node, *signal, now);
  } else if (phase_ == Phase::kRunning && nodes_[node].takes_part && !nodes_[node].ended) {
    if (std::holds_alternative<Settle>(message) || std::holds_alternative<End>(message)) {
      note_trouble(node);
      pass_on(node, message);
    } else if (std::holds_alternative<TrainersEnded>(message)) {
      trainers_ended(node, now);
    } else if (const auto* end = std::get_if<Ended>(&message)) {
      ended(node, *end, now);
    }
  }
}

void JobState::note_trouble(int node) {
  if (failures_count_) failures_.note_trouble(node);
}

void JobState::pass_on(int from, const Message& message) {
  Message out = message;
  const std::string origin = nodes_[from].label;
  if (auto* settle = std::get_if<Settle>(&out)) settle->reason += " on " + origin;
  if (auto* end = std::get_if<End>(&out)) end->reason += " on " + origin;
  auto* signal = std::get_if<Signal>(&out);
  if (signal != nullptr) signal->origin = origin;
  for (const auto& [id, member] : nodes_) {
    // A signal also goes back: it may have come before the start, to a node without tasks.
    const bool is_wanted = id != from || signal != nullptr;
    if (is_wanted && member.takes_part && !member.ended) send(id, out);
  }
}

void JobState::signalled(int node, const Signal& signal, Time now) {
  Member& member = nodes_.at(node);
  const std::string got = str("got ", signal_name(signal.number));
  const bool leaves = is_elastic() && member.node.rank != 0 && !is_of_people(signal.number);
  if (phase_ == Phase::kForming && !leaves) {
    finish(128 + signal.number,
           {str(member.label, " ", got, " while the job waited for nodes; it ends")});
  } else if (phase_ == Phase::kForming || !member.takes_part) {
    send(node, Finish{128 + signal.number});  // the job goes on without it
    lose_member(node, "it " + got, 128 + signal.number, now);
  } else {
    if (leaves && !member.leaves && !told_to_end_)
      notify_all({str(member.label, " ", got, " and leaves; all tasks may save, to start again")});
    if (!leaves && resizes_ && !told_to_end_)
      notify_all({str(member.label, " ", got, ", too; the job ends")});
    (leaves ? member.leaves : told_to_end_) = true;
    resizes_ |= leaves;
    pass_on(node, signal);
  }
}

void JobState::trainers_ended(int node, Time now) {
  Member& member = nodes_[node];
  member.trainers_ended = true;
  if (member.workers_ended()) trainer_reports_.begin(now);  // nodes without any say so at once
  const bool all = std::all_of(nodes_.begin(), nodes_.end(), [](const auto& entry) {
    return !entry.second.takes_part || entry.second.trainers_ended;
  });
  if (!all || lost_any_) return;
  failures_count_ = false;  // how the others end does not matter
  for (const auto& [id, member] : nodes_) {
    if (member.takes_part && !member.ended) send(id, End{});
  }
}

// Who are frozen would be waited for in silence, for ever.
void JobState::report_trainers(Time now) {
  if (!all_is_well() || !trainer_reports_.take(now)) return;
  std::vector<std::string> labels;
  for (const auto& [id, member] : nodes_)
    if (member.takes_part && !member.trainers_ended) labels.push_back(member.label);
  notify_all({str("others have finished; waiting for the tasks of ", comma_separated(labels))});
}

void JobState::ended(int node, const Ended& ended, Time now) {
  Member& member = nodes_[node];
  member.ended = true;
  for (const Failure& failure : ended.failures) {
    note_trouble(node);  // none where all trainers had ended before
    failures_.add(node, member.label, failure);
  }
  for (const std::string& end : ended.ends) failures_.add_end(str(end, " on ", member.label));
  maybe_conclude(now);
}

void JobState::lose(int node, const std::string& how, int code, Time now) {
  applicants_.erase(node);
  lose_member(node, how, code, now);
  for (auto& [id, applicant] : applicants_) applicant.silent.erase(node);
  reconsider_applicants(now);
}

void JobState::lose_member(int node, const std::string& how, int code, Time now) {
  const auto found = nodes_.find(node);
  if (found == nodes_.end()) return;
  const Member member = std::move(found->second);
  nodes_.erase(found);
  if (phase_ != Phase::kRunning || !member.takes_part) {
    if (phase_ == Phase::kForming) {
      enough_ = rules_.max_nodes;  // somebody may take its place
      last_call_ = now + rules_.last_call;
      notify_all({str("lost ", member.label, ": ", how)});
    }
    return;
  }
  lost_any_ = true;
  if (failures_count_) {
    failures_.add_loss(member.label, how, code);
    for (const auto& [id, other] : nodes_) {
      if (other.takes_part && !other.ended) send(id, End{str("lost ", member.label, ": ", how)});
    }
  }
  maybe_conclude(now);
}

void JobState::maybe_conclude(Time now) {
  const bool all = std::all_of(nodes_.begin(), nodes_.end(), [](const auto& entry) {
    return !entry.second.takes_part || entry.second.ended;
  });
  if (all) conclude(now);
}

// Losses do that, too, but might be the program's doing where they come soon.
bool JobState::nodes_have_changed(Time now) const {
  return is_elastic() && (resizes_ || (lost_any_ && now - started_ >= RestartPause::kLongAttempt));
}

void JobState::conclude(Time now) {
  std::vector<std::string> lines = failures_.summary();
  if (std::string line = expel_culprit(); !line.empty()) lines.push_back(std::move(line));
  const bool counts = !nodes_have_changed(now);
  if (failures_.any() && !told_to_end_ && (!counts || counted_restarts_ < rules_.restarts)) {
    notify_all(std::move(lines));
    dismiss_leaving();
    restart(counts, now);
    return;
  }
  if (timed_out_ && !failures_.any()) {
    lines.push_back("failed: " + too_long(std::chrono::duration<double>(rules_.timeout).count()));
    finish(exit_code(Code::kDeadlineExceeded), lines);
    return;
  }
  const auto restarts = count(static_cast<size_t>(restarts_), "restart");
  if (restarts_ > 0)
    lines.push_back(str(failures_.any() ? "ended" : "finished", " after ", restarts));
  finish(failures_.code(), lines);
}

std::string JobState::expel_culprit() {
  const auto culprit = failures_.culprit();
  blamed_rounds_ = culprit == culprit_ ? blamed_rounds_ + 1 : 1;
  culprit_ = culprit;
  const auto found = culprit ? nodes_.find(*culprit) : nodes_.end();
  if (found == nodes_.end() || !may_expel(found->second)) return "";
  Member& member = found->second;
  member.leaves = resizes_ = true;
  return str(member.label, " leaves after ", count(static_cast<size_t>(blamed_rounds_), "failure"),
             " of its tasks (--node_failures); the others go on");
}

bool JobState::may_expel(const Member& member) const {
  const bool too_often = rules_.node_failures > 0 && blamed_rounds_ >= rules_.node_failures;
  if (!too_often || !is_elastic() || told_to_end_ || member.leaves || member.node.rank == 0)
    return false;
  size_t others = 0;
  bool any_trains = false;
  for (const auto& [id, other] : nodes_) {
    if (&other == &member || other.leaves) continue;
    ++others;
    any_trains |= other.trains();
  }
  return others >= rules_.min_nodes && any_trains;
}

void JobState::dismiss_leaving() {
  std::erase_if(nodes_, [&](const auto& entry) {
    const auto& [id, member] = entry;
    if (member.leaves) send(id, Finish{failures_.code()});
    return member.leaves;
  });
}

void JobState::restart(bool counts, Time now) {
  ++restarts_;
  if (counts) ++counted_restarts_;
  const auto pause = restart_pause_.after(now - started_);
  not_before_ = now + pause;
  notify_all({counts ? restarting(pause, counted_restarts_, rules_.restarts)
                     : restarting_with_other_nodes(pause)});
  form(lost_any_ || nodes_.size() < size_ ? rules_.max_nodes : size_, now);
  if (nodes_.size() < enough_) report_progress(now);
  maybe_start(now);
}

void JobState::finish(int code, const std::vector<std::string>& lines) {
  if (phase_ == Phase::kOver) return;
  if (!lines.empty()) notify_all(lines);
  send_to_all(Finish{code});
  phase_ = Phase::kOver;
  for (const auto& [id, applicant] : std::exchange(applicants_, {}))
    send(id, *misfit(applicant.join));
}

void JobState::time_out() {
  const std::string reason = too_long(std::chrono::duration<double>(rules_.timeout).count());
  timed_out_ = told_to_end_ = true;
  failures_count_ = false;  // how tasks end does not matter any more
  if (phase_ == Phase::kForming) {
    finish(exit_code(Code::kDeadlineExceeded), {"failed: " + reason});
    return;
  }
  for (const auto& [id, member] : nodes_) {
    if (member.takes_part && !member.ended) send(id, End{reason});
  }
}

// Of a round: nothing ends it yet.
bool JobState::all_is_well() const {
  return phase_ == Phase::kRunning && !resizes_ && !lost_any_ && !told_to_end_ && failures_count_ &&
         !failures_.any_trouble();
}

bool JobState::may_grow(Time now) const {
  if (!all_is_well() || !is_elastic() || now < last_call_) return false;
  const auto any = [&](auto&& is) { return std::any_of(nodes_.begin(), nodes_.end(), is); };
  return any([](const auto& entry) { return !entry.second.takes_part; }) &&
         !any([](const auto& entry) { return entry.second.workers_ended() || entry.second.ended; });
}

void JobState::grow() {
  resizes_ = true;
  notify_all({str("asking all tasks to save, for a start on ", count(nodes_.size(), "node"),
                  " instead of ", size_)});
  for (const auto& [id, member] : nodes_)
    if (member.takes_part) send(id, Signal{SIGTERM, false, "the rendezvous"});
}

void JobState::tick(Time now) {
  const bool too_late = rules_.timeout > Duration::zero() && first_started_ &&
                        now - *first_started_ >= rules_.timeout;
  if (too_late && !timed_out_ && phase_ != Phase::kOver) time_out();
  if (phase_ == Phase::kForming) maybe_start(now);
  if (may_grow(now)) grow();
  report_trainers(now);
}

void JobState::send_to_all(const Message& message) {
  for (const auto& [id, member] : nodes_) send(id, message);
}

}  // namespace cohort::launcher
