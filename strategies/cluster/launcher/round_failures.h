#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "strategies/cluster/launcher/messages.h"

namespace cohort::launcher {

// What has gone wrong on the nodes of a job in one round, which of it is to blame, and how that is
// told: the likeliest cause of the others, and of those that are as likely, the one on the node
// that told of trouble first.
class RoundFailures {
 public:
  // A node says that it has trouble, by the number of its connection.
  void note_trouble(int node);
  bool any_trouble() const { return !troubled_.empty(); }

  // A task of a node has failed, which `label` names. It is ignored where that node has not told of
  // trouble.
  void add(int node, const std::string& label, const Failure& failure);
  // A node is lost: `how` says why.
  void add_loss(const std::string& label, const std::string& how, int code);
  // Of a task that is not to blame.
  void add_end(std::string end) { ends_.push_back(std::move(end)); }

  bool any() const { return blame_.has_value(); }
  // The node whose task is to blame, where it failed by itself: not one that misses another, or did
  // what it was asked to do.
  std::optional<int> culprit() const;
  // The exit code of the failure that is to blame, and the lines that tell of it and of what ended
  // after it; 0 and no lines where there is none.
  int code() const { return blame_ ? blame_->failure.code : 0; }
  std::vector<std::string> summary() const;

 private:
  struct Blame {
    Failure failure;
    std::string label;
    size_t trouble;  // the place of its node among those that told of trouble
  };

  void blame(Blame blame);
  static std::string describe(const Blame& blame);

  std::vector<int> troubled_;  // nodes, in the order in which they told of trouble
  std::optional<Blame> blame_;
  std::vector<std::string> ends_;  // of tasks that are not to blame
};

}  // namespace cohort::launcher
