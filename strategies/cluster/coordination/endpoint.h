#pragma once

#include <string>
#include <vector>

#include "strategies/cluster/address.h"
#include "strategies/cluster/net/internet_address.h"

namespace cohort::coordination {

// All that the name stands for, as net::InternetAddress::resolve().
std::vector<net::InternetAddress> resolve(const Address& address);
bool all_loopback(const std::vector<net::InternetAddress>& endpoints);
// As gRPC wants it: "ipv4:127.0.0.1:2222", "ipv6:[::1]:2222", "ipv6:[fe80::1%25eth0]:2222".
std::string grpc_target(const net::InternetAddress& endpoint);

}  // namespace cohort::coordination
