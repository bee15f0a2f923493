#pragma once

#include <chrono>
#include <memory>

#include "strategies/parameter_server/link.h"
#include "strategies/parameter_server/local_offer.h"

namespace cohort::parameter_server {

// A link by shared memory, to a server of this host that has made an offer by gRPC. connect() then
// throws kUnavailable, kPermissionDenied or kDataLoss where the two cannot share memory after all.
// A server that has not moved for as long as `patience` has gone.
std::unique_ptr<Link> link_locally(const LocalOffer& offer,
                                   std::chrono::milliseconds patience = kUsualPatience);

}  // namespace cohort::parameter_server
