#pragma once

#include <string>

#include "strategies/collective/host/process_identity.h"

namespace cohort::parameter_server {

// How a caller on the server's host reaches it without gRPC.
struct LocalOffer {
  std::string socket;  // the name of a Unix socket without a file
  std::string word;    // which the caller says there: that it is who has been made the offer
  ProcessIdentity server;
};

}  // namespace cohort::parameter_server
