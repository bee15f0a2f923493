#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "strategies/cluster/launcher/node.h"

// What the nodes of a job and their rendezvous tell each other.
namespace cohort::launcher {

// From a node: it wants to be one of the job's. The first message of a connection.
struct Join {
  int protocol = 0;    // kProtocol of the sender
  std::string job_id;  // --job_id
  // What all nodes have to agree on, as (what, how this node has it).
  std::vector<std::pair<std::string, std::string>> terms;
  Node node;
};
inline constexpr int kProtocol = 2;

// From the rendezvous: it does not want that node.
struct Refused {
  int code = 0;  // a cohort::Code
  std::string reason;
};

// Both ways, so that silence means a loss.
struct Ping {};

// From the rendezvous: lines for whoever reads what cohort-run prints.
struct Notice {
  std::vector<std::string> lines;
};

// From the rendezvous: all tasks are to be started.
struct Start {
  Round round;
};

// Each of the following three says what a node's attempt does; the rendezvous passes it on to all
// other nodes, whose attempts do the same.
struct Settle {  // one task has said that the run is over: the others may end by themselves
  std::string reason;
  bool briefly = false;  // it has failed, perhaps because of another, which has yet to say so
};
struct End {  // all tasks are asked to end; from the rendezvous also when the trainers of all have
  std::string reason;  // "" after a success
};
struct Signal {
  int number = 0;
  bool again = false;  // an interrupt after the first
  std::string origin;  // filled in by the rendezvous
};

// From a node: its chief and workers have ended.
struct TrainersEnded {};

// What ended an attempt.
struct Failure {
  std::string what;  // "worker:1 (pid 123) exited with code 3"
  int code = 0;      // exit code
  int weight = 0;    // how likely it is the cause of others
  std::vector<std::string> last_lines;
};
// The weights: of the loss of a node, which the rendezvous finds itself, and of what attempts find.
inline constexpr int kWeightOfLoss = 3, kWeightOfCause = 2, kWeightOfResumable = 1,
                     kWeightOfConsequence = 0, kWeightOfSignal = -1;

// From a node: its attempt is over.
struct Ended {
  std::vector<Failure> failures;  // none, or the one that ended its attempt
  std::vector<std::string> ends;  // of the other tasks: "worker:0 was killed by SIGTERM"
};

// From a node: it leaves before the end of the job.
struct Leave {
  int code = 0;  // its exit code
  std::string reason;
};

// From the rendezvous: the job is over.
struct Finish {
  int code = 0;  // the exit code of all
};

using Message = std::variant<Join, Refused, Ping, Notice, Start, Settle, End, Signal, TrainersEnded,
                             Ended, Leave, Finish>;

// Never longer than kMaxMessage for messages that name at most kMaxTasksOfJob tasks.
std::string encode(const Message& message);
// kDataLoss for whatever encode() has not made; it may be any bytes.
Message decode(std::string_view text);

inline constexpr size_t kMaxMessage = 1 << 20;    // bytes
inline constexpr size_t kMaxTasksOfJob = 10'000;  // fewer where TF_CONFIG has no room for them

}  // namespace cohort::launcher
