#pragma once

namespace cohort {

// Whether a parameter server writes down what it acknowledges, beside its snapshots, so that
// nothing of it is lost when the server is killed.
enum class ServerLog {
  kNone,     // what has been acknowledged since the last snapshot is lost
  kWritten,  // before it is acknowledged: it outlives the process
  kSynced,   // and is on the disk: it outlives the host; each push waits for the disk
};

}  // namespace cohort
