#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "core/base/error.h"
#include "core/distribute/remote_updates.h"
#include "core/runtime/precision.h"
#include "core/runtime/replica_group.h"
#include "core/runtime/variable.h"
#include "core/tensor/tensor.h"
#include "strategies/parameter_server/compression.h"
#include "strategies/parameter_server/exchange.h"
#include "strategies/parameter_server/push_counts.h"
#include "strategies/parameter_server/tensor_payload.h"

// What coordinator and worker say to each other (proto/worker.proto), as values.
namespace cohort::coordinator {

inline constexpr uint32_t kProtocolVersion = 11;
inline constexpr char kMethod[] = "/cohort.coordinator.proto.Worker/Serve";

// What a parameter of a function is given: a tensor, or a batch of named ones.
struct Parameter {
  bool is_batch = false;
  std::vector<std::string> names = {};  // of a batch
  // Replicas get values of their own: of a batch, their rows.
  bool per_replica = false;
  bool operator==(const Parameter&) const = default;
};

// For what a function is traced.
struct CallSignature {
  std::vector<Parameter> parameters;
  Signature tensors;  // one parameter after the other, before rows are divided
  bool operator==(const CallSignature&) const = default;
};

// --- To a worker

struct Attach {
  std::string job_id, task;
  uint64_t incarnation = 0;
  std::string worker;
  int worker_index = 0, num_workers = 1;
  std::vector<std::string> servers = {};  // addresses of the parameter servers
  CompressionOptions compression = {};
  uint64_t max_bytes = 0;  // of the tensors in one message to the coordinator; 0: any number
};

struct Define {
  uint64_t function = 0;
  CallSignature signature;
  // uint8: serialised functions, one for each signature that a replica has.
  std::vector<Tensor> graphs;
  std::optional<Error> error;                      // instead
  std::vector<std::string> server_variables = {};  // packed
  Precision precision = Precision::kFloat32;
};

struct Argument {
  Parameter parameter;
  std::vector<Tensor> tensors;
  uint64_t resource = 0;  // instead, where it is not 0
};
size_t bytes_of(const std::vector<Tensor>& tensors);
// Of all their tensors.
size_t bytes_of(const std::vector<Argument>& arguments);

struct Run {
  uint64_t id = 0, function = 0;
  std::vector<Argument> arguments;
  uint64_t seed = 0, number = 0;
  uint64_t lane = 0, lane_sequence = 0;
};

struct CreateVariable {
  std::string name;
  Tensor value;
  // Of the copies of a worker's replicas.
  Synchronization synchronization = Synchronization::kAuto;
  Aggregation aggregation = Aggregation::kNone;
  KeptApart kept = KeptApart::kState;
};
struct CreateIterator {
  std::string dataset;
  uint64_t pass = 0;  // over it: shuffles depend on it
};
struct Create {
  uint64_t resource = 0;
  std::variant<CreateVariable, CreateIterator, Run> what;
  std::string function_name = {};  // of a Run, for messages
};

struct Drop {
  uint64_t resource = 0;
};
struct Fetch {
  uint64_t id = 0, resource = 0;
};
struct Cancel {};
struct Recall {};
struct AskStatus {
  uint64_t id = 0;
};
struct ShutDown {};
// Nothing waits in the worker's sums any more: each, and its count, is 0 again.
struct Forget {};

using Command =
    std::variant<Define, Create, Drop, Run, Fetch, Cancel, Recall, AskStatus, ShutDown, Forget>;

struct ToWorker {
  std::optional<Attach> attach;
  std::vector<Command> commands;
};

// --- From a worker

struct Result {
  uint64_t id = 0;
  std::optional<Error> error;
  std::vector<Tensor> values;  // of one replica after the other
  bool returned = false;       // recalled before it began, or cancelled
  // By resource, the counts (KeptApart::kCount) that it moves: whether calls are waiting now.
  std::map<uint64_t, bool> counts = {};
};

struct Missing {
  uint64_t function = 0;
  CallSignature signature;
};

struct Status {
  uint64_t id = 0, executed = 0, waiting = 0, functions = 0, resources = 0;
};

struct Attached {
  uint64_t incarnation = 0;
  int replicas = 1;        // on how many devices the worker runs each function
  uint64_t max_bytes = 0;  // of the tensors in one message to it
};

struct FromWorker {
  std::optional<Attached> attached;
  std::vector<Result> results;
  std::vector<Missing> missing;
  std::optional<Status> status;
  uint64_t busy_us = 0;
  PushCounts pushes = {};  // since the last message
};

// --- As bytes

parameter_server::Message encode(const ToWorker& message);
parameter_server::Message encode(const FromWorker& message);

// A message whose payload is still on its way: the memory of its tensors is there, and is written
// through `targets`.
template <typename T>
struct Decoded {
  T message;
  parameter_server::Targets targets;
};
// From a header, which may be hostile: kInvalidArgument, kResourceExhausted where its tensors take
// more than `max_bytes`, kFailedPrecondition for another version of the protocol.
Decoded<ToWorker> decode_to_worker(const std::string& header, size_t max_bytes);
Decoded<FromWorker> decode_from_worker(const std::string& header, size_t max_bytes);

// Of both sides, before there is a call: makes what the first message to decode would need
// (parameter_server::prepare_parts).
void prepare_decoding();

}  // namespace cohort::coordinator
