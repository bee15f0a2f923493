#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "strategies/cluster/address.h"
#include "strategies/cluster/environment.h"
#include "strategies/parameter_server/server_options.h"
#include "strategies/parameter_server/statistics.h"

namespace cohort {

// Keeps shards of variables and applies gradients to them, for workers that reach it by
// ParameterClient. It serves from its making to its destruction, on threads of its own: each shard
// has its own lock, so that shards do not wait for each other and no update is seen half.
//
// A server that is killed starts again from its last snapshot, if it has a folder for them; where
// that is damaged, from the one before it, and a line says so. Pushes that it had acknowledged
// since are gone; the next push of each worker shows how many, and a line "lost=N" says so. Of
// workers that have ended, or do not come back, a file in the folder knows. Within one life of the
// server, and over a restart for what its snapshot has, each push is applied exactly once, however
// often it is retried.
class ParameterServer {
 public:
  // Listens at `address`. kFailedPrecondition when the port is in use, the address is not of this
  // host, another server has the snapshot_folder, or plain text would go beyond this host without
  // permission; kInvalidArgument for options and certificates; kDataLoss where the last snapshot is
  // damaged, and so is the one before it, or there is none; as core/base/file.h says where its
  // folder cannot be made or written to, or a snapshot that may be whole cannot be read.
  explicit ParameterServer(const Address& address, const ParameterServerOptions& options = {},
                           const Environment& environment = process_environment);
  ~ParameterServer();
  ParameterServer(const ParameterServer&) = delete;
  ParameterServer& operator=(const ParameterServer&) = delete;

  // Returns when the job has asked the server to end, or left it alone (orphaned_after), or the
  // process has been asked to stop (stop_request()).
  void wait();
  // Whether the job needs the server no more: it has asked it to end, or all who have come have
  // said that their work is done (ParameterClient::say_done), and somebody has come.
  bool is_done() const;
  // The tasks that have come and have not said so: "worker:1".
  std::vector<std::string> unfinished() const;
  // Returns when nobody is connected, the job needs the server no more, or the time is over.
  void wait_for_callers(std::chrono::milliseconds limit);
  // Stops serving and, if it has a folder for them, takes the last snapshot, with an Error where it
  // cannot be written; but not where the job has asked the server to end (shut_down()), for what
  // was not saved by then is not wanted, nor without snapshot_at_end. Where this is not called the
  // destructor does so, and such an error is a line.
  void end();
  // Random, of this start.
  uint64_t epoch() const;
  ServerStatistics statistics() const;
  // To the folder of the options; kFailedPrecondition without one, kOutOfRange where a variable has
  // diverged: optimizers have moved it from finite numbers to others. Then the last one stays.
  void snapshot();

 private:
  class Network;
  std::unique_ptr<Network> network_;
};

}  // namespace cohort
