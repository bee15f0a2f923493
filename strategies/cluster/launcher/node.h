#pragma once

#include <string>
#include <vector>

namespace cohort::launcher {

// One host of a job, as the others know it: where its tasks listen.
struct Node {
  std::string name;  // the host's own name, for people
  std::string host;  // by which tasks on other hosts reach it
  int rank = -1;     // --node_rank; -1 without it
  int chief = 0;     // ports; the chief's is used on the first node alone, and 0 without a chief
  std::vector<int> workers, ps;
};

// The nodes of a job from one start of all tasks to their end.
struct Round {
  int restart = 0;  // how often all tasks have been started again
  std::string job_id;
  int index = 0;            // of this node
  std::vector<Node> nodes;  // in their order
};

}  // namespace cohort::launcher
