#include "strategies/coordinator/messages.h"

#include <algorithm>
#include <cstring>

#include "core/tensor/bool_bytes.h"
#include "proto/worker.pb.h"
#include "strategies/cluster/coordination/fault.h"
#include "strategies/parameter_server/message_parts.h"

namespace cohort::coordinator {
namespace {

using coordination::read_fault;
using coordination::write_fault;
using parameter_server::Message;
using parameter_server::piece_of;
using parameter_server::Targets;

// Tensors up to this size travel in the header, so many bytes of a message.
constexpr size_t kInlineBytes = 1024, kMaxInlineBytes = 1 << 20;
constexpr size_t kMaxTextBytes = 4096;
constexpr size_t kMaxTensors = 1 << 20;  // of a message
constexpr size_t kMaxCounts = 1024;      // of a result
constexpr int kMaxServers = 1024;        // for each, a worker has a thread

// --- Writing

void write_spec(const TensorSpec& spec, auto& out) {
  out.set_dtype(static_cast<int>(spec.dtype));
  for (const int64_t extent : spec.shape) out.add_shape(extent);
}

class Writer {
 public:
  void write(const Tensor& tensor, proto::Value& out) {
    write_spec(tensor.spec(), out);
    if (tensor.bytes() <= std::min(kInlineBytes, inline_left_)) {
      inline_left_ -= tensor.bytes();
      out.set_data(tensor.raw(), tensor.bytes());
    } else {
      out.set_payload_bytes(tensor.bytes());
      message_.payload.push_back(piece_of(tensor));
    }
  }

  void write(const Run& run, proto::Run& out) {
    out.set_id(run.id);
    out.set_function(run.function);
    for (const Argument& argument : run.arguments) {
      proto::Argument& to = *out.add_arguments();
      if (argument.parameter.is_batch) write_parameter(argument.parameter, *to.mutable_parameter());
      if (argument.resource != 0) {
        to.set_resource(argument.resource);
      } else {
        for (const Tensor& tensor : argument.tensors)
          write(tensor, *to.mutable_tensors()->add_values());
      }
    }
    out.set_seed(run.seed);
    out.set_number(run.number);
    out.set_lane(run.lane);
    out.set_lane_sequence(run.lane_sequence);
  }

  void write(const Create& create, proto::Create& out) {
    out.set_resource(create.resource);
    if (const auto* variable = std::get_if<CreateVariable>(&create.what)) {
      out.mutable_variable()->set_name(variable->name);
      out.mutable_variable()->set_synchronization(static_cast<int>(variable->synchronization));
      out.mutable_variable()->set_aggregation(static_cast<int>(variable->aggregation));
      out.mutable_variable()->set_kept(static_cast<int>(variable->kept));
      write(variable->value, *out.mutable_variable()->mutable_value());
    } else if (const auto* iterator = std::get_if<CreateIterator>(&create.what)) {
      out.set_dataset(iterator->dataset);
      out.set_pass(iterator->pass);
    } else {
      write(std::get<Run>(create.what), *out.mutable_value());
      out.set_function_name(create.function_name);
    }
  }

  static void write_parameter(const Parameter& parameter, proto::Parameter& out) {
    out.set_batch(parameter.is_batch);
    out.set_per_replica(parameter.per_replica);
    for (const std::string& name : parameter.names) out.add_names(name);
  }

  template <typename Out>
  static void write_signature(const CallSignature& signature, Out& out) {
    for (const Parameter& parameter : signature.parameters)
      write_parameter(parameter, *out.add_parameters());
    for (const TensorSpec& spec : signature.tensors) write_spec(spec, *out.add_signature());
  }

  template <typename Header>
  Message finish(const Header& header) {
    message_.header = header.SerializeAsString();
    return std::move(message_);
  }

 private:
  Message message_;
  size_t inline_left_ = kMaxInlineBytes;
};

void write(const Command& command, Writer& writer, proto::Command& out) {
  struct Visitor {
    Writer& writer;
    proto::Command& out;
    void operator()(const Define& define) const {
      proto::Define& to = *out.mutable_define();
      to.set_function(define.function);
      for (const std::string& variable : define.server_variables) to.add_server_variables(variable);
      to.set_precision(static_cast<uint32_t>(define.precision));
      Writer::write_signature(define.signature, to);
      if (define.error)
        write_fault(*define.error, to.mutable_fault());
      else
        for (const Tensor& graph : define.graphs) writer.write(graph, *to.add_graphs());
    }
    void operator()(const Create& create) const { writer.write(create, *out.mutable_create()); }
    void operator()(const Drop& drop) const { out.set_drop(drop.resource); }
    void operator()(const Run& run) const { writer.write(run, *out.mutable_run()); }
    void operator()(const Fetch& fetch) const {
      out.mutable_fetch()->set_id(fetch.id);
      out.mutable_fetch()->set_resource(fetch.resource);
    }
    void operator()(Cancel) const { out.mutable_cancel(); }
    void operator()(Recall) const { out.mutable_recall(); }
    void operator()(const AskStatus& ask) const { out.set_status(ask.id); }
    void operator()(ShutDown) const { out.mutable_shut_down(); }
    void operator()(Forget) const { out.mutable_forget(); }
  };
  std::visit(Visitor{writer, out}, command);
}

// --- Reading

std::string text(const std::string& in, const char* what) {
  if (in.size() > kMaxTextBytes)
    invalid(what, " of ", in.size(), " bytes; the limit is ", kMaxTextBytes);
  return in;
}

TensorSpec read_spec(const auto& in) {
  if (in.dtype() < 0 || in.dtype() >= kNumDTypes) invalid(in.dtype(), " is not a dtype");
  return {static_cast<DType>(in.dtype()),
          Shape(std::span<const int64_t>(in.shape().data(), static_cast<size_t>(in.shape_size())))};
}

class Reader {
 public:
  explicit Reader(size_t max_bytes) : left_(max_bytes), max_bytes_(max_bytes) {}

  Tensor read(const proto::Value& in) {
    const TensorSpec spec = read_spec(in);
    const size_t given = in.payload_bytes() > 0 ? in.payload_bytes() : in.data().size();
    // Compared by division: the product may overflow.
    const size_t size = dtype_size(spec.dtype);
    if (given % size != 0 || given / size != static_cast<size_t>(spec.shape.num_elements()) ||
        (in.payload_bytes() > 0 && !in.data().empty()))
      invalid("a tensor ", spec, " comes with ", given, " bytes");
    if (given > left_ || ++tensors_ > kMaxTensors)
      fail(Code::kResourceExhausted, "a message with more than ", max_bytes_,
           " bytes in tensors, or ", kMaxTensors, " of them");
    left_ -= given;
    Tensor tensor(spec.dtype, spec.shape);
    if (in.payload_bytes() > 0) {
      targets_.add(tensor);
    } else {
      std::memcpy(tensor.raw(), in.data().data(), given);
      normalize_bools(tensor);
    }
    return tensor;
  }

  static Parameter read(const proto::Parameter& in) {
    Parameter parameter{.is_batch = in.batch(), .per_replica = in.per_replica()};
    for (const std::string& name : in.names())
      parameter.names.push_back(text(name, "the name of a tensor"));
    return parameter;
  }

  template <typename In>
  static CallSignature read_signature(const In& in) {
    CallSignature signature;
    for (const proto::Parameter& parameter : in.parameters())
      signature.parameters.push_back(read(parameter));
    for (const proto::Spec& spec : in.signature()) signature.tensors.push_back(read_spec(spec));
    return signature;
  }

  Run read(const proto::Run& in) {
    Run run{.id = in.id(),
            .function = in.function(),
            .seed = in.seed(),
            .number = in.number(),
            .lane = in.lane(),
            .lane_sequence = in.lane_sequence()};
    run.arguments.reserve(static_cast<size_t>(in.arguments_size()));
    for (const proto::Argument& argument : in.arguments()) {
      Argument& to = run.arguments.emplace_back();
      to.parameter = read(argument.parameter());
      to.resource = argument.resource();
      for (const proto::Value& value : argument.tensors().values())
        to.tensors.push_back(read(value));
      const size_t wanted = to.parameter.is_batch ? to.parameter.names.size() : 1;
      if (to.resource == 0 && to.tensors.size() != wanted)
        invalid("an argument of ", to.tensors.size(), " tensors where ", wanted, " are needed");
    }
    return run;
  }

  static Precision read_precision(uint32_t number) {
    if (number > static_cast<uint32_t>(Precision::kMixedFloat16))
      invalid("a function has precision ", number);
    return static_cast<Precision>(number);
  }

  CreateVariable read(const proto::Variable& in) {
    const auto enumerated = [](int number, auto last) {
      if (number < 0 || number > static_cast<int>(last))
        invalid("a variable is kept in way ", number);
      return static_cast<decltype(last)>(number);
    };
    return {.name = text(in.name(), "the name of a variable"),
            .value = read(in.value()),
            .synchronization = enumerated(in.synchronization(), Synchronization::kNone),
            .aggregation = enumerated(in.aggregation(), Aggregation::kOnlyFirstReplica),
            .kept = enumerated(in.kept(), KeptApart::kCount)};
  }

  Create read(const proto::Create& in) {
    Create create{.resource = in.resource(), .what = {}};
    if (in.resource() == 0) invalid("a resource has no number");
    switch (in.kind_case()) {
      case proto::Create::kVariable:
        create.what = read(in.variable());
        break;
      case proto::Create::kValue:
        create.what = read(in.value());
        create.function_name = text(in.function_name(), "the name of a function");
        break;
      case proto::Create::kDataset:
        create.what = CreateIterator{text(in.dataset(), "the name of a dataset"), in.pass()};
        break;
      case proto::Create::KIND_NOT_SET:
        invalid("a resource is of no kind");
    }
    return create;
  }

  Command read(const proto::Command& in) {
    switch (in.kind_case()) {
      case proto::Command::kDefine: {
        Define define{.function = in.define().function(),
                      .signature = read_signature(in.define()),
                      .graphs = {},
                      .error = {},
                      .server_variables = {in.define().server_variables().begin(),
                                           in.define().server_variables().end()},
                      .precision = read_precision(in.define().precision())};
        if (in.define().has_fault())
          define.error = read_fault(in.define().fault());
        else
          for (const proto::Value& graph : in.define().graphs())
            define.graphs.push_back(read(graph));
        return define;
      }
      case proto::Command::kCreate:
        return read(in.create());
      case proto::Command::kDrop:
        return Drop{in.drop()};
      case proto::Command::kRun:
        return read(in.run());
      case proto::Command::kFetch:
        return Fetch{in.fetch().id(), in.fetch().resource()};
      case proto::Command::kCancel:
        return Cancel{};
      case proto::Command::kRecall:
        return Recall{};
      case proto::Command::kStatus:
        return AskStatus{in.status()};
      case proto::Command::kShutDown:
        return ShutDown{};
      case proto::Command::kForget:
        return Forget{};
      case proto::Command::KIND_NOT_SET:
        break;
    }
    invalid("a command is of no kind");
  }

  Targets targets() && { return std::move(targets_); }

 private:
  size_t left_, tensors_ = 0;
  const size_t max_bytes_;
  Targets targets_;
};

template <typename Header>
Header parse(const std::string& bytes) {
  parameter_server::check_parts(bytes, *Header::descriptor());
  Header header;
  if (!header.ParseFromString(bytes)) invalid("the header of a message cannot be read");
  return header;
}

}  // namespace

size_t bytes_of(const std::vector<Tensor>& tensors) {
  size_t bytes = 0;
  for (const Tensor& tensor : tensors) bytes += tensor.bytes();
  return bytes;
}

size_t bytes_of(const std::vector<Argument>& arguments) {
  size_t bytes = 0;
  for (const Argument& argument : arguments) bytes += bytes_of(argument.tensors);
  return bytes;
}

Message encode(const ToWorker& message) {
  Writer writer;
  proto::ToWorker header;
  if (const auto& attach = message.attach) {
    proto::Attach& to = *header.mutable_attach();
    cohort::proto::Caller& caller = *to.mutable_caller();
    caller.set_protocol(kProtocolVersion);
    caller.set_job_id(attach->job_id);
    caller.set_task(attach->task);
    caller.set_incarnation(attach->incarnation);
    to.set_worker(attach->worker);
    to.set_worker_index(attach->worker_index);
    to.set_num_workers(attach->num_workers);
    for (const std::string& server : attach->servers) to.add_servers(server);
    to.mutable_compression()->set_kind(static_cast<int>(attach->compression.kind));
    to.mutable_compression()->set_top_k(attach->compression.top_k);
    to.mutable_compression()->set_threshold(attach->compression.threshold);
    to.set_max_bytes(attach->max_bytes);
  }
  for (const Command& command : message.commands) write(command, writer, *header.add_commands());
  return writer.finish(header);
}

Message encode(const FromWorker& message) {
  Writer writer;
  proto::FromWorker header;
  if (message.attached) {
    header.mutable_attached()->set_incarnation(message.attached->incarnation);
    header.mutable_attached()->set_replicas(message.attached->replicas);
    header.mutable_attached()->set_max_bytes(message.attached->max_bytes);
  }
  for (const Result& result : message.results) {
    proto::Result& to = *header.add_results();
    to.set_id(result.id);
    to.set_returned(result.returned);
    to.mutable_counts()->insert(result.counts.begin(), result.counts.end());
    if (result.error) write_fault(*result.error, to.mutable_fault());
    for (const Tensor& value : result.values) writer.write(value, *to.add_values());
  }
  for (const Missing& missing : message.missing) {
    proto::Missing& to = *header.add_missing();
    to.set_function(missing.function);
    Writer::write_signature(missing.signature, to);
  }
  if (const auto& status = message.status) {
    proto::Status& to = *header.mutable_status();
    to.set_id(status->id);
    to.set_executed(status->executed);
    to.set_waiting(status->waiting);
    to.set_functions(status->functions);
    to.set_resources(status->resources);
  }
  header.set_busy_us(message.busy_us);
  const auto& staleness = message.pushes.staleness;
  header.mutable_pushes()->mutable_staleness()->insert(staleness.begin(), staleness.end());
  header.mutable_pushes()->set_lost(message.pushes.lost);
  return writer.finish(header);
}

Decoded<ToWorker> decode_to_worker(const std::string& bytes, size_t max_bytes) {
  const auto header = parse<proto::ToWorker>(bytes);
  Reader reader(max_bytes);
  ToWorker message;
  if (header.has_attach()) {
    const proto::Attach& in = header.attach();
    if (in.caller().protocol() != kProtocolVersion)
      fail(Code::kFailedPrecondition, "the coordinator speaks version ", in.caller().protocol(),
           " of the protocol, this worker version ", kProtocolVersion);
    message.attach = {.job_id = text(in.caller().job_id(), "the name of a job"),
                      .task = text(in.caller().task(), "the name of a task"),
                      .incarnation = in.caller().incarnation(),
                      .worker = text(in.worker(), "the name of a task"),
                      .worker_index = in.worker_index(),
                      .num_workers = in.num_workers()};
    if (in.servers_size() > kMaxServers)
      invalid("a job has ", in.servers_size(), " parameter servers; the limit is ", kMaxServers);
    for (const std::string& server : in.servers())
      message.attach->servers.push_back(text(server, "an address"));
    const proto::Compression& compression = in.compression();
    if (compression.kind() < 0 || compression.kind() >= kNumCompressions)
      invalid("gradients cannot be compressed by kind ", compression.kind());
    message.attach->compression = {.kind = static_cast<Compression>(compression.kind()),
                                   .top_k = compression.top_k(),
                                   .threshold = compression.threshold()};
    message.attach->max_bytes = in.max_bytes();
    if (in.worker_index() < 0 || in.worker_index() >= in.num_workers())
      invalid("a worker has number ", in.worker_index(), " of ", in.num_workers());
  }
  message.commands.reserve(static_cast<size_t>(header.commands_size()));
  for (const proto::Command& command : header.commands())
    message.commands.push_back(reader.read(command));
  return {std::move(message), std::move(reader).targets()};
}

Decoded<FromWorker> decode_from_worker(const std::string& bytes, size_t max_bytes) {
  const auto header = parse<proto::FromWorker>(bytes);
  Reader reader(max_bytes);
  FromWorker message{.attached = {}, .results = {}, .missing = {}, .status = {}};
  if (header.has_attached())
    message.attached = {header.attached().incarnation(), header.attached().replicas(),
                        header.attached().max_bytes()};
  for (const proto::Result& in : header.results()) {
    Result& result = message.results.emplace_back();
    result.id = in.id();
    result.returned = in.returned();
    if (in.counts().size() > kMaxCounts)
      invalid("a result has ", in.counts().size(), " counts; the limit is ", kMaxCounts);
    result.counts = {in.counts().begin(), in.counts().end()};
    if (in.has_fault()) result.error = read_fault(in.fault());
    for (const proto::Value& value : in.values()) result.values.push_back(reader.read(value));
  }
  for (const proto::Missing& in : header.missing())
    message.missing.push_back({in.function(), Reader::read_signature(in)});
  if (header.has_status()) {
    const proto::Status& in = header.status();
    message.status = {.id = in.id(),
                      .executed = in.executed(),
                      .waiting = in.waiting(),
                      .functions = in.functions(),
                      .resources = in.resources()};
  }
  message.busy_us = header.busy_us();
  const auto& staleness = header.pushes().staleness();
  message.pushes = {.staleness = {staleness.begin(), staleness.end()},
                    .lost = header.pushes().lost()};
  return {std::move(message), std::move(reader).targets()};
}

void prepare_decoding() {
  parameter_server::prepare_parts(*proto::ToWorker::descriptor());
  parameter_server::prepare_parts(*proto::FromWorker::descriptor());
}

}  // namespace cohort::coordinator
