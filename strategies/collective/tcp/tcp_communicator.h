#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/collective/communicator.h"
#include "core/collective/stall_warning.h"
#include "strategies/cluster/coordination/key_value_store.h"
#include "strategies/cluster/coordination/security.h"

namespace cohort {

struct TcpOptions {
  // Where this rank listens, and where the others reach it: "host:port". Port 0 lets the system
  // choose one. The port is closed again when all ranks are connected.
  std::string address = "127.0.0.1:0";
  // What errors call it: as people know it, and where it was written, as in "h1:2222
  // (TF_CONFIG.cluster.worker[1])". Where empty, it speaks for itself.
  std::string address_as_written = {};
  // With certificates, ranks talk by TLS and no other way, all or none of them. Where empty:
  // COHORT_TLS_CERT, COHORT_TLS_KEY, COHORT_TLS_CA, COHORT_TLS_LEADER_NAME. The certificate of a
  // rank that is called carries COHORT_TLS_LEADER_NAME or else the host of its address; or it is
  // for its task, and so must be that of one that calls if it is for certain tasks.
  TlsFiles tls = {};
  // The job for which certificates of certain tasks may be.
  std::string job_id = {};
  // Without certificates, whoever can reach the port while the group forms could take part in it:
  // addresses beyond this host are refused unless this is set; also COHORT_ALLOW_PLAINTEXT=1.
  bool allow_plaintext = false;
  // What errors and certificates call the tasks, by rank: "worker:2"; empty where they have no
  // names.
  std::vector<std::string> tasks = {};
  // Distinguishes groups that use one store, and the attempts to form one.
  std::string name = "group";
  // For all ranks to be connected.
  std::chrono::milliseconds join_timeout{60'000};
  // For each call, and for each wait.
  std::chrono::milliseconds timeout{300'000};
  // Of a rank that waits for others to come to a collective, or to a message.
  StallWarning stall = {};
  // For which a network may be away while ranks wait: a peer whose host was asked and has answered
  // nothing for so long is given up, at most 0.8 s after this has passed. A rank asks once it has
  // waited for half a second.
  std::chrono::milliseconds silence{1'900};
  // The same while the group forms: networks of new hosts may take their time.
  std::chrono::milliseconds join_silence{4'000};
  // Called with the error that names such a peer, on the thread that waits, which ends the group
  // first: nobody else can know, for connections of other ranks may be fine.
  std::function<void(const Error&)> on_unreachable = {};
  // Hears, after a collective that took some milliseconds, on the thread that made it, for how long
  // what this rank has sent to the task of each other rank has kept the network busy
  // (net::sending_time()) since it heard of it last.
  std::function<void(const std::string& task, std::chrono::microseconds time)> on_sent = {};
  // Whether payloads carry checks, as headers always do: finds what TCP's own check lets pass.
  // Costs a pass over the data at each end. Also COHORT_TCP_CHECK_PAYLOADS=1. What a rank sends
  // carries checks or not, whatever the others do.
  bool check_payloads = false;
};

// The communicator of one of `size` ranks, which may be on different hosts, over TCP. All ranks
// call it, each once, with the same name and size; they find each other through `store`, which is
// not used later on, and keeps one key of a group that has formed.
//
// The bits of reductions are those of the ranks' values combined one after the other, in rank
// order, as other backends do. Started collectives go on in a thread of their own, as do messages.
//
// After abort(), what all ranks have joined is finished only as long as data keep coming: whoever
// ended the group may have lost one of them. So it is when a rank destroys its communicator, but
// for that data may stay away for three seconds.
//
// Besides the errors of Communicator: kUnavailable names a rank that cannot be reached any more,
// kDeadlineExceeded those for which a call waited too long, kDataLoss one that sent what cannot be
// right; on all ranks. kInvalidArgument and kFailedPrecondition for options and ranks that cannot
// be, an address that is not of this host, and a name of this rank that stays unknown while it
// waits for that, as it does for other ranks; kCancelled after an interrupt meanwhile. While the
// group forms, kPermissionDenied for certificates, and kFailedPrecondition where some ranks have
// certificates and others have none, each with the peer.
std::unique_ptr<Communicator> make_tcp_communicator(KeyValueStore& store, int rank, int size,
                                                    const TcpOptions& options = {});

// As `whole.split`, of a communicator of several ranks made by the above, with a time limit of its
// own for the part. `numbers`, unless it is empty, is what errors call the ranks of the part.
std::unique_ptr<Communicator> split_tcp_communicator(Communicator& whole, int color, int key,
                                                     std::chrono::milliseconds timeout,
                                                     const std::vector<int>& numbers = {});

// `group.run(call)`, of a communicator made by one of the above that has several ranks. `number` is
// what errors call the collective, and `whole`, of which it is a part, what ranks are said to wait
// in.
void run_tcp_collective(Communicator& group, const Call& call, uint64_t number,
                        const Call* whole = nullptr);

// What errors call a rank of such a communicator: "worker:2 (rank 2) at 10.0.0.3:4000" and, as the
// one at fault, "worker:2", or "" where ranks have no tasks.
struct TcpRankName {
  std::string text, task;
};
TcpRankName tcp_rank_name(Communicator& group, int rank);

}  // namespace cohort
