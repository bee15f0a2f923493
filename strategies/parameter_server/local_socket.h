#pragma once

#include <string>

#include "strategies/cluster/net/descriptor.h"

// Unix sockets whose names are no files, so that nothing is left behind by whoever is killed.
namespace cohort::parameter_server {

// kUnavailable, and kResourceExhausted without descriptors.
net::Descriptor listen_locally(const std::string& name);
// Does not wait. kUnavailable when nobody listens, or too many are waiting there.
net::Descriptor connect_locally(const std::string& name);
// Whether the process at the other end belongs to this process's user.
bool is_of_this_user(const net::Descriptor& socket);

}  // namespace cohort::parameter_server
