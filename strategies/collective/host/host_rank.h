#pragma once

#include "strategies/collective/host/peer_memory.h"
#include "strategies/collective/host/shared_meeting.h"

namespace cohort {

// What the collectives of one rank work with. Everything outlives them.
struct HostRank {
  const ControlBlock& control;
  SharedMeeting& meeting;
  PeerMemory& memory;
  const int rank, size;
};

// How the ranks of a call reach each other's data; all choose the same.
enum class HostPath {
  kInline,  // a small call's data lies in the posts
  kDirect,  // in place: everybody uses the others' memory
  kStaged   // through staging areas, one part after the other
};

// The memory of a peer is not as its calls, which were equal to this rank's, say.
[[noreturn]] void refuse_peer(const HostRank& host, int rank);

}  // namespace cohort
