#pragma once

#include <array>
#include <chrono>
#include <vector>

#include "strategies/cluster/net/internet_address.h"
#include "strategies/collective/tcp/frame.h"

namespace cohort::tcp {

// The sockets of each channel, by rank; none for the own one.
using Links = std::array<std::vector<net::Descriptor>, kChannels>;

// Connects this rank with all others of its group on every channel: it calls the ranks before it
// and is called by those after it, on `listener`. Whoever else calls, or says nothing, is dropped
// and costs nobody anything. kDeadlineExceeded names the ranks that are missing,
// kFailedPrecondition a rank that speaks another version of the protocol.
Links connect_mesh(int rank, const Token& token, const net::Descriptor& listener,
                   const std::vector<net::InternetAddress>& ranks, Clock::time_point deadline);

}  // namespace cohort::tcp
