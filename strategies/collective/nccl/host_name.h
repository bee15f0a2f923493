#pragma once

#include <string>

namespace cohort {

// The host, as NCCL tells hosts apart: what NCCL_HOSTID says, else the name of this machine. Ranks
// with ids of their own may share a card, over NCCL's sockets.
std::string nccl_host_name();

}  // namespace cohort
