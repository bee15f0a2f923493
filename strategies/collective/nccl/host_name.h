#pragma once

#include <string>

namespace cohort {

// The host, as NCCL tells hosts apart: what NCCL_HOSTID says, else the name of this machine and the
// kernel's number of its boot, for machines may have one name. Ranks with ids of their own may
// share a card, over NCCL's sockets.
struct NcclHostName {
  std::string name;
  std::string boot;  // empty where NCCL_HOSTID says
};
NcclHostName nccl_host_name();

}  // namespace cohort
