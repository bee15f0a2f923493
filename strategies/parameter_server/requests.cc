#include "strategies/parameter_server/requests.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <span>
#include <utility>

#include "core/base/error.h"
#include "proto/parameter_server.pb.h"
#include "strategies/parameter_server/clock_exchange.h"
#include "strategies/parameter_server/spec_message.h"
#include "strategies/parameter_server/update_exchange.h"
#include "strategies/parameter_server/wire.h"

namespace cohort::parameter_server {
namespace {

// A request that is one call, made when all of its payload has arrived.
class CallExchange final : public Exchange, public std::enable_shared_from_this<CallExchange> {
 public:
  using Body = std::function<proto::Reply(const std::shared_ptr<Buffer>& payload)>;
  using Memory = std::function<std::shared_ptr<Buffer>(size_t bytes)>;
  // `memory` is asked for that of the payload when its first bytes are there.
  CallExchange(Service& service, std::shared_ptr<Caller> caller, uint64_t payload_bytes, Body body,
               Memory memory = allocate_host_buffer)
      : service_(service),
        caller_(std::move(caller)),
        payload_bytes_(payload_bytes),
        body_(std::move(body)),
        memory_(std::move(memory)) {}

  uint64_t payload_bytes() const override { return payload_bytes_; }

  std::span<char> room() override {
    if (buffer_ == nullptr) buffer_ = memory_(payload_bytes_);
    return {static_cast<char*>(buffer_->data) + filled_, payload_bytes_ - filled_};
  }

  bool receive(const char* data, size_t bytes) override {
    if (char* const place = room().data(); place != data) std::memcpy(place, data, bytes);
    filled_ += bytes;
    return true;
  }

  void complete() override {
    if (buffer_ == nullptr) buffer_ = allocate_host_buffer(0);
    service_.pool().run([self = shared_from_this()] { self->call(); });
  }

  std::optional<Message> next_message(const TakeMemory&) override {
    return std::exchange(reply_, std::nullopt);
  }

 private:
  void call() {
    try {
      reply_ = Message{.header = body_(buffer_).SerializeAsString()};
    } catch (const std::exception& error) {
      return caller_->refuse(refusal_of(error));
    }
    buffer_ = nullptr;
    caller_->reply();
  }

  Service& service_;
  const std::shared_ptr<Caller> caller_;
  const uint64_t payload_bytes_;
  const Body body_;
  const Memory memory_;
  std::shared_ptr<Buffer> buffer_;
  size_t filled_ = 0;
  std::optional<Message> reply_;
};

proto::Reply created(Service& service, const Shard* shard, bool existed, bool needs_value) {
  proto::Reply reply;
  proto::Created& created = *reply.mutable_created();
  created.set_existed(existed);
  created.set_needs_value(needs_value);
  created.set_version(shard ? shard->version() : 0);
  created.set_epoch(service.epoch());
  created.set_birth(shard ? shard->birth() : 0);
  return reply;
}

// A create that makes nothing: the shard is there, or another task is making it, for which the
// reply waits, or it is only looked for. A value that comes with it is dropped.
class LookExchange final : public Exchange, public std::enable_shared_from_this<LookExchange> {
 public:
  LookExchange(Service& service, const proto::Request& request, ShardSpec wanted,
               std::shared_ptr<Caller> caller)
      : service_(service),
        payload_bytes_(request.create().payload_bytes()),
        timeout_(timeout_of(request.timeout_ms())),
        wanted_(std::move(wanted)),
        caller_(std::move(caller)) {}

  uint64_t payload_bytes() const override { return payload_bytes_; }

  void complete() override {
    const auto is_ready = [self = shared_from_this()] {
      return self->caller_->has_gone() || self->maker().empty();
    };
    // Who compares shards is not the one who looks after all waiting.
    const auto proceed = [self = shared_from_this()](bool ready) {
      self->service_.pool().run([self, ready] { self->answer(ready); });
    };
    service_.waiting_room().wait({.is_ready = is_ready,
                                  .deadline = std::chrono::steady_clock::now() + timeout_,
                                  .proceed = proceed});
  }

  std::optional<Message> next_message(const TakeMemory&) override {
    return std::exchange(reply_, std::nullopt);
  }

 private:
  std::string maker() const { return service_.makers().maker(wanted_.name); }

  void answer(bool ready) {
    try {
      const auto present = service_.find(wanted_.name);
      if (present != nullptr)
        service_.require_wanted(*present, wanted_);
      else if (!ready)
        refuse_to_wait();
      const bool is_there = present != nullptr;
      reply_ = Message{
          .header = created(service_, present.get(), is_there, !is_there).SerializeAsString()};
    } catch (const std::exception& error) {
      return caller_->refuse(refusal_of(error));
    }
    caller_->reply();
  }

  // Longer, for who is making it still.
  void refuse_to_wait() const {
    const std::string task = maker();
    if (!task.empty())
      throw Error(Code::kDeadlineExceeded,
                  str("shard \"", wanted_.name, "\" is being made by ", task,
                      ", whose value for it has not come"),
                  task);
  }

  Service& service_;
  const uint64_t payload_bytes_;
  const std::chrono::milliseconds timeout_;
  const ShardSpec wanted_;
  const std::shared_ptr<Caller> caller_;
  std::optional<Message> reply_;
};

CallExchange::Body create_body(Service& service, ShardSpec spec,
                               std::shared_ptr<ShardMakers::Making> making) {
  return [&service, spec = std::move(spec),
          making = std::move(making)](const std::shared_ptr<Buffer>& payload) {
    making->hand_over();
    const TensorSpec whole = spec.spec();
    const bool is_new =
        service.create(spec, spec.lazy ? Tensor() : Tensor(whole.dtype, whole.shape, payload));
    return created(service, service.shard(spec.name).get(), !is_new, false);
  };
}

// With a value, or the promise that there is none (a table of rows, an empty shard), the shard is
// made, unless another task is making it or has made it; without, it is only looked for.
std::shared_ptr<Exchange> begin_create(Service& service, const proto::Request& request,
                                       const std::shared_ptr<Start>& start,
                                       const std::shared_ptr<Caller>& caller) {
  ShardSpec spec = read_shard_spec(request.create());
  spec.check(service.memory_for(spec.name));
  const uint64_t given = request.create().payload_bytes();
  const uint64_t wanted = spec.lazy ? 0 : spec.spec().bytes();
  if (given != 0 && given != wanted)
    invalid("the initial value of shard \"", spec.name, "\" takes ", wanted, " bytes, got ", given);
  auto making = given == wanted ? service.makers().begin(spec.name, start->task) : nullptr;
  if (const auto present = service.find(spec.name)) {
    service.require_wanted(*present, spec);
    making = nullptr;
  }
  if (making == nullptr)
    return std::make_shared<LookExchange>(service, request, std::move(spec), caller);
  return std::make_shared<CallExchange>(service, caller, given,
                                        create_body(service, std::move(spec), making),
                                        [making](size_t bytes) { return making->memory(bytes); });
}

// `sequence` is that of the request. A later start of the task may have written since it began.
Shard::Writer writer_of(const std::shared_ptr<Start>& start, uint64_t sequence) {
  return {.task = start->task,
          .mark = {.incarnation = start->incarnation, .sequence = sequence},
          .start = start};
}

void check_write(const Shard& shard, int part, uint64_t sequence) {
  if (part < 0 || part >= shard.spec().num_parts())
    invalid("shard \"", shard.spec().name, "\" has no part ", part);
  if (sequence < 1) invalid("a write to shard \"", shard.spec().name, "\" has no number");
}

std::shared_ptr<Exchange> begin_assign(Service& service, const proto::Request& request,
                                       const std::shared_ptr<Start>& start,
                                       const std::shared_ptr<Caller>& caller) {
  const proto::Assign& assign = request.assign();
  const auto shard = service.shard(assign.shard(), assign.birth());
  const TensorSpec spec = shard->spec().spec();
  if (shard->spec().lazy)
    invalid("shard \"", shard->spec().name,
            "\" makes its rows on first use, and cannot be assigned");
  check_write(*shard, assign.part(), assign.sequence());
  require_tensor_spec("the value of", shard->spec().name, assign, spec);
  if (assign.payload_bytes() != spec.bytes())
    invalid("the value of shard \"", shard->spec().name, "\" takes ", spec.bytes(), " bytes, got ",
            assign.payload_bytes());
  return std::make_shared<CallExchange>(
      service, caller, spec.bytes(),
      [&service, shard, spec, part = assign.part(), start,
       sequence = assign.sequence()](const std::shared_ptr<Buffer>& payload) {
        shard->assign(writer_of(start, sequence), part, Tensor(spec.dtype, spec.shape, payload));
        return created(service, shard.get(), true, false);
      });
}

std::shared_ptr<Exchange> begin_assign_rows(Service& service, const proto::Request& request,
                                            const std::shared_ptr<Start>& start,
                                            const std::shared_ptr<Caller>& caller) {
  const proto::AssignRows& assign = request.assign_rows();
  const auto shard = service.shard(assign.shard(), assign.birth());
  shard->require_table();
  const ShardSpec& spec = shard->spec();
  check_write(*shard, assign.part(), assign.sequence());
  if (assign.only_missing() && (assign.reset() || assign.part() != 0))
    invalid("missing rows of shard \"", spec.name, "\" are made of their value, without a reset");
  const uint64_t each = sizeof(int64_t) + spec.row_bytes();
  if (assign.rows() < 0 || static_cast<uint64_t>(assign.rows()) > kMaxRowsBytes / each)
    fail(Code::kResourceExhausted, assign.rows(), " rows of shard \"", spec.name,
         "\" in a request; the limit is ", kMaxRowsBytes, " bytes");
  require_tensor_spec("the value of", spec.name, assign, spec.rows_spec(assign.rows()));
  const auto count = static_cast<size_t>(assign.rows());
  if (assign.payload_bytes() != count * each)
    invalid(count, " rows of shard \"", spec.name, "\" take ", count * each, " bytes, got ",
            assign.payload_bytes());
  return std::make_shared<CallExchange>(
      service, caller, count * each,
      [&service, shard, count, part = assign.part(), reset = assign.reset(),
       only_missing = assign.only_missing(), start,
       sequence = assign.sequence()](const std::shared_ptr<Buffer>& payload) {
        const Shard::Writer writer = writer_of(start, sequence);
        const auto* numbers = static_cast<const int64_t*>(payload->data);
        const std::span rows(numbers, count);
        const auto* values = reinterpret_cast<const char*>(numbers + count);
        if (only_missing)
          shard->add_missing_rows(writer, rows, values);
        else
          shard->assign_rows(writer, part, rows, values, reset);
        return created(service, shard.get(), true, false);
      });
}

proto::Reply listed_rows(const Service& service, const proto::ListRows& wanted) {
  if (wanted.most() < 1) invalid("a list of ", wanted.most(), " rows");
  proto::Reply reply;
  proto::ListedRows& out = *reply.mutable_listed_rows();
  const auto most = static_cast<size_t>(std::min(wanted.most(), kMaxListedRows));
  const auto shard = service.shard(wanted.shard(), wanted.birth());
  for (const int64_t row : shard->rows_after(wanted.after(), most)) out.add_rows(row);
  return reply;
}

proto::Reply statistics(const Service& service) {
  const ServerStatistics s = service.statistics();
  proto::Reply reply;
  proto::Stats& out = *reply.mutable_stats();
  out.set_epoch(s.epoch);
  out.set_shards(s.shards);
  out.set_rows(s.rows);
  out.set_bytes(s.bytes);
  out.set_pushes_applied(s.pushes_applied);
  out.set_pushes_counted(s.pushes_counted);
  out.set_pushes_repeated(s.pushes_repeated);
  out.set_pushes_late(s.pushes_late);
  out.set_pushes_lost(s.pushes_lost);
  out.set_requests_refused(s.requests_refused);
  out.set_snapshots_failed(s.snapshots_failed);
  out.set_received_bytes(s.received_bytes);
  out.set_sent_bytes(s.sent_bytes);
  out.set_sessions(s.sessions);
  out.set_sharing_sessions(s.sharing_sessions);
  out.set_direct_sessions(s.direct_sessions);
  for (const uint64_t count : s.staleness) out.add_staleness(count);
  return reply;
}

proto::Reply upgraded(const Service::Offer& offer) {
  proto::Reply reply;
  proto::Upgraded& out = *reply.mutable_upgraded();
  out.set_direct_word(offer.word);
  if (!offer.memory) return reply;
  out.set_socket(offer.memory->socket);
  out.set_word(offer.memory->word);
  out.set_pid(offer.memory->server.pid);
  out.set_start_time(offer.memory->server.start_time);
  return reply;
}

proto::Reply done(Service& service, Start& caller) {
  service.end_work(caller);
  proto::Reply reply;
  reply.mutable_done();
  return reply;
}

// What is written to disk or ends the server is for the tasks that lead the job.
void require_leader(const std::string& task, const char* request) {
  if (task == "chief:0" || task == "worker:0") return;
  throw Error(Code::kPermissionDenied,
              str(request, " is for chief:0 or worker:0, and ", task, " has asked for it"), task);
}

}  // namespace

std::shared_ptr<Exchange> begin(Service& service, proto::Request& request,
                                const std::shared_ptr<Start>& start,
                                const std::shared_ptr<Caller>& caller) {
  const auto call = [&](CallExchange::Body body) -> std::shared_ptr<Exchange> {
    return std::make_shared<CallExchange>(service, caller, 0, std::move(body));
  };
  switch (request.kind_case()) {
    case proto::Request::kCreate:
      return begin_create(service, request, start, caller);
    case proto::Request::kUpdate:
      return std::make_shared<UpdateExchange>(service, request, start, caller);
    case proto::Request::kAssign:
      return begin_assign(service, request, start, caller);
    case proto::Request::kAssignRows:
      return begin_assign_rows(service, request, start, caller);
    case proto::Request::kListRows:
      return call([&service, wanted = request.list_rows()](const auto&) {
        return listed_rows(service, wanted);
      });
    case proto::Request::kClock:
      return std::make_shared<ClockExchange>(service, request, start, caller);
    case proto::Request::kSnapshot:
      require_leader(start->task, "a snapshot");
      return call([&service, folder = request.snapshot().folder()](const auto&) {
        service.snapshot(folder);
        return statistics(service);
      });
    case proto::Request::kRestore:
      require_leader(start->task, "restoring");
      return call([&service, folder = request.restore().folder()](const auto&) {
        proto::Reply reply;
        reply.mutable_restored()->set_shards(service.restore(folder));
        return reply;
      });
    case proto::Request::kUpgrade:
      return call([&service, start, host = request.upgrade().host()](const auto&) {
        return upgraded(service.offer(host, start));
      });
    case proto::Request::kDone:
      return call([&service, start](const auto&) { return done(service, *start); });
    case proto::Request::kStats:
      return call([&service](const auto&) { return statistics(service); });
    case proto::Request::kShutdown:
      require_leader(start->task, "shutting down");
      return call([&service](const auto&) {
        service.shut_down();
        return statistics(service);
      });
    case proto::Request::KIND_NOT_SET:
      break;
  }
  fail(Code::kUnimplemented, "the request is of a kind that this server does not know");
}

}  // namespace cohort::parameter_server
