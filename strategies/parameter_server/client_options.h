#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "strategies/cluster/coordination/security.h"
#include "strategies/parameter_server/compression.h"
#include "strategies/parameter_server/consistency.h"
#include "strategies/parameter_server/patience.h"

namespace cohort {

// How requests travel. Each goes on as the one before it where a server cannot be reached so.
enum class Transport {
  kGrpc,
  kDirect,        // by a TCP connection to the same port, on which payloads are not copied
  kSharedMemory,  // where client and server are on one host
};

struct ParameterClientOptions {
  std::string task;  // who calls: "worker:1"
  // As ParameterServerOptions::job_id.
  std::string job_id = {};
  // Who is called, "ps:0", where that is known: for errors, which name its address too.
  std::string server = {};
  // A number of this start of the task, 0 for a random one. Clients of one process for several
  // servers share it.
  uint64_t incarnation = 0;
  // How long a call may take, with waiting for a server that is not there yet or starts again.
  std::chrono::milliseconds timeout = std::chrono::seconds(60);
  // A server that gives no sign of life for so long while a call waits for it has gone: the call
  // looks for it anew. By gRPC it is asked for one after two seconds.
  std::chrono::milliseconds patience = parameter_server::kUsualPatience;
  CompressionOptions compression = {};  // of dense gradients, but for those of integers
  Transport transport = Transport::kSharedMemory;
  TlsFiles tls = {};
  bool allow_plaintext = false;
  // What the server has to have, or calls are kFailedPrecondition with both values; none: it may
  // have any.
  std::optional<ConsistencyOptions> consistency = {};
  // Gets lines for people, without a newline, such as for which server a call has been waiting for
  // some seconds; where empty, they go to standard error. May be called from any thread.
  std::function<void(const std::string& line)> notice = {};
};

}  // namespace cohort
