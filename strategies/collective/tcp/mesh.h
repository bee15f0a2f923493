#pragma once

#include <array>
#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "strategies/cluster/coordination/security.h"
#include "strategies/cluster/net/internet_address.h"
#include "strategies/cluster/net/stream.h"
#include "strategies/collective/tcp/frame.h"

namespace cohort::tcp {

// The connections of each channel, by rank; none for the own one.
using Links = std::array<std::vector<net::Stream>, kChannels>;

// How ranks know each other while they are connected.
struct MeshOptions {
  const coordination::Security& security;
  std::string job_id;
  std::vector<std::string> hosts;  // that certificates may name, by rank
  std::vector<std::string> tasks;  // "worker:1", by rank
  // For which a host may answer nothing.
  std::chrono::milliseconds silence;
  Clock::time_point deadline;
  // Called every few milliseconds, unless it is empty; what it throws ends the attempt.
  std::function<void()> check;
};

// Connects this rank with all others of its group on every channel: it calls the ranks before it
// and is called by those after it, on `listener`. Whoever else calls, or says nothing, is dropped
// and costs nobody anything. kUnavailable names a rank whose host answers nothing;
// kDeadlineExceeded those that are missing, and who was refused; kFailedPrecondition a rank that
// speaks another version of the protocol, or plain text where this one does not, and the other way
// round; kPermissionDenied one whose certificate, or which this rank's, does not satisfy.
Links connect_mesh(int rank, const Token& token, const net::Descriptor& listener,
                   const std::vector<net::InternetAddress>& ranks, const MeshOptions& options);

}  // namespace cohort::tcp
