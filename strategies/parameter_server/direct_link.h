#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "strategies/cluster/address.h"
#include "strategies/cluster/coordination/security.h"
#include "strategies/parameter_server/link.h"

namespace cohort::parameter_server {

// A link by a TCP connection without gRPC, to a server that has given the caller this word by gRPC.
// connect() throws kUnavailable, kPermissionDenied or kDataLoss where there is no such way.
// `security` must outlive connect(). A server that is silent for as long as `patience` has gone.
std::unique_ptr<Link> link_directly(const Address& server, const coordination::Security& security,
                                    std::string word,
                                    std::chrono::milliseconds patience = kUsualPatience);

}  // namespace cohort::parameter_server
