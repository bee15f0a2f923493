#pragma once

#include "strategies/cluster/coordination/key_value_store.h"
#include "strategies/cluster/coordination/security.h"
#include "strategies/cluster/net/descriptor.h"
#include "strategies/cluster/net/internet_address.h"
#include "strategies/collective/tcp/frame.h"
#include "strategies/collective/tcp/tcp_communicator.h"

namespace cohort::tcp {

// Where a rank of a new group waits for the others to connect.
struct OwnListener {
  net::InternetAddress address;  // as it was asked for
  net::Descriptor socket;
};

// Listens at `options.address`. A name that nobody knows yet is tried again, and so is one that
// stands for an address of another host, as it may for a while where that had the name before.
// Meanwhile the first rank of its task says so every 5 s. A tenth of the time to join, which ends
// at `deadline`, is left for telling those that wait for this rank. kFailedPrecondition when that
// begins, and at once for an address, rather than a name, that is not of this host; kCancelled
// after an interrupt; what `store.check()` throws; as check_address() for the address.
OwnListener listen_for_others(const KeyValueStore& store, int rank, const TcpOptions& options,
                              const coordination::Security& security, Clock::time_point deadline);

}  // namespace cohort::tcp
