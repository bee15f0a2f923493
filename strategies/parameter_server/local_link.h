#pragma once

#include <memory>

#include "strategies/parameter_server/link.h"
#include "strategies/parameter_server/local_offer.h"

namespace cohort::parameter_server {

// A link by shared memory, to a server of this host that has made an offer by gRPC. connect() then
// throws kUnavailable, kPermissionDenied or kDataLoss where the two cannot share memory after all.
std::unique_ptr<Link> link_locally(const LocalOffer& offer);

}  // namespace cohort::parameter_server
