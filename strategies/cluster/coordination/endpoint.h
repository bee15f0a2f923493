#pragma once

#include <string>
#include <vector>

#include "strategies/cluster/address.h"
#include "strategies/cluster/net/internet_address.h"

namespace cohort::coordination {

// All that the name stands for, as net::InternetAddress::resolve().
std::vector<net::InternetAddress> resolve(const Address& address);
bool all_loopback(const std::vector<net::InternetAddress>& endpoints);
// As gRPC wants it: "ipv4:127.0.0.1:2222", "ipv6:[::1]:2222".
std::string grpc_target(const net::InternetAddress& endpoint);
// To be called before gRPC is used: keeps it from ending with its last user, which sometimes waits
// 10 s for a thread of its own.
void keep_grpc();

}  // namespace cohort::coordination
