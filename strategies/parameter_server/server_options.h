#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <string>

#include "strategies/cluster/coordination/security.h"
#include "strategies/parameter_server/consistency.h"
#include "strategies/parameter_server/server_log.h"

namespace cohort {

struct ParameterServerOptions {
  // What the tasks of this job have in common and no other job has; where empty, COHORT_JOB_ID.
  // Requests of another job are refused.
  std::string job_id = {};
  ConsistencyOptions consistency = {};
  // Of values, also those on their way to be new shards, and slots; a push holds its gradient
  // besides.
  size_t max_bytes = size_t{64} << 30;
  // That apply updates; 0: as many as there are cores.
  int threads = 0;
  // Where the server keeps snapshots of itself and looks for one when it starts; empty: nowhere.
  std::string snapshot_folder = {};
  // How many servers the job has: what is in the folder is refused where another number of them has
  // written it, for those have had the variables in other shards. Snapshots say it, so that one
  // which lacks a server's folder is not taken for whole. 0: that is not known.
  int num_servers = 0;
  // Between snapshots that it makes by itself, of which the first comes at once when there are
  // shards, unless there is a log, which has them; 0: when asked to alone, and at its end.
  std::chrono::milliseconds snapshot_interval{0};
  // Whether it takes one more at its end, unless the job has asked for that: without, what came
  // after the one before is lost as where it is killed.
  bool snapshot_at_end = true;
  // What is written down there besides; needs a snapshot_folder, and a snapshot_interval, as it
  // grows until the next snapshot. A server that is started again with a log in the folder needs
  // one too.
  ServerLog log = ServerLog::kNone;
  // wait() returns when nobody has been connected for so long, after somebody was; 0: never.
  std::chrono::milliseconds orphaned_after = std::chrono::seconds(60);
  // The same when nobody ever was.
  std::chrono::milliseconds unclaimed_after = std::chrono::minutes(10);
  // How long a worker that lost its connection still counts as one to wait for. A process that is
  // killed loses it at once, one whose host has gone after 5 s.
  std::chrono::milliseconds worker_grace = std::chrono::seconds(2);
  // Calls that may be open at a time. One that has not said who it is that calls gives way to
  // others.
  int max_sessions = 1024;
  // Where empty: COHORT_TLS_CERT, COHORT_TLS_KEY, COHORT_TLS_CA.
  TlsFiles tls = {};
  // Plain text beyond this host; also COHORT_ALLOW_PLAINTEXT=1.
  bool allow_plaintext = false;
  // Gets lines for people, without a newline; where empty, they go to standard error. May be called
  // from any thread.
  std::function<void(const std::string& line)> notice = {};
};

}  // namespace cohort
