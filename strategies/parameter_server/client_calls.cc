#include "strategies/parameter_server/client_calls.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>

#include "core/base/program.h"
#include "core/base/start_threads.h"
#include "proto/parameter_server.pb.h"
#include "strategies/cluster/coordination/grpc_credentials.h"
#include "strategies/cluster/net/tls_variables.h"
#include "strategies/collective/host/process_identity.h"
#include "strategies/parameter_server/direct_link.h"
#include "strategies/parameter_server/frame_socket.h"
#include "strategies/parameter_server/local_link.h"
#include "strategies/parameter_server/same_consistency.h"
#include "strategies/parameter_server/wire.h"

namespace cohort::parameter_server {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

// The server's own deadline comes first: its error says what was waited for.
constexpr milliseconds kGrace(300);
constexpr milliseconds kConnectTime(2000);        // for one attempt, before its error is looked at
constexpr std::chrono::seconds kBetweenLines(5);  // that say who is waited for

// How long the server of a call has been away.
class Absence {
 public:
  // An attempt has failed, before the server was reached or after. The seconds that it has been
  // away, where it is time to say so.
  std::optional<int64_t> line_due(bool reached) {
    const auto now = Clock::now();
    if (std::exchange(is_first_, false) && reached) since_ = now;
    const auto away = now - since_;
    if (away < next_line_) return {};
    next_line_ = away + kBetweenLines;
    return std::chrono::floor<std::chrono::seconds>(away).count();
  }

 private:
  bool is_first_ = true;
  Clock::time_point since_ = Clock::now();
  Clock::duration next_line_ = kBetweenLines;
};

// By what gRPC says of a connection that the other side has ended, or with which it has not agreed
// on TLS. Nobody tells why: who is refused by TLS 1.3 learns it after its own handshake.
bool is_hung_up(const std::string& what) {
  constexpr const char* kSigns[] = {"closed", "reset", "Broken pipe", "handshake", "SSL", "Ssl"};
  return std::ranges::any_of(
      kSigns, [&](const char* sign) { return what.find(sign) != std::string::npos; });
}

// A reply that is one header.
proto::Reply receive_reply(Link& link, Link::Time until) {
  proto::Reply reply;
  link.receive({.begin =
                    [&](const std::string& header, size_t) {
                      if (!reply.ParseFromString(header))
                        fail(Code::kDataLoss, "a reply cannot be read");
                    },
                .take = [](const char*, size_t) {}},
               until);
  return reply;
}

}  // namespace

ClientCalls::ClientCalls(const Address& server, const ParameterClientOptions& options,
                         const Environment& environment)
    : server_(server),
      options_(options),
      security_(options.tls, options.allow_plaintext, environment),
      may_upgrade_(options.transport != Transport::kGrpc) {
  coordination::keep_grpc();
}

ClientCalls::~ClientCalls() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  wake_.notify_all();
  if (heart_.joinable()) heart_.join();
}

void ClientCalls::cancel() {
  const std::lock_guard lock(mutex_);
  cancelled_ = true;
  for (Link* link : busy_) link->cancel();
  wake_.notify_all();
}

void ClientCalls::resume() {
  const std::lock_guard lock(mutex_);
  cancelled_ = false;
}

bool ClientCalls::replace(std::unique_ptr<Link>& link, Link::Unconnected unconnected) {
  for (std::shared_ptr<grpc::Channel> channel;;) {
    {
      const std::lock_guard lock(mutex_);
      if (cancelled_) fail(Code::kCancelled, "the client was cancelled");
      if (link) std::erase(busy_, link.get());
      if (!idle_.empty()) {
        link = std::move(idle_.back());
        idle_.pop_back();
        busy_.push_back(link.get());
        return false;
      }
      if (!channel_) channel_ = std::move(channel);
      if (channel_) {
        link = std::make_unique<Link>(channel_, unconnected);
        busy_.push_back(link.get());
        return true;
      }
    }
    // Looks up the server's name, for which nobody else shall wait.
    channel = open_channel(server_, security_, options_.patience);
  }
}

std::unique_ptr<Link> ClientCalls::take_link(Time deadline) {
  std::unique_ptr<Link> link;
  bool is_new = false;
  const auto open = [&](Link::Unconnected unconnected, Time until) {
    is_new = replace(link, unconnected);
    return !is_new || link->connect(until);
  };
  try {
    if (!open(Link::Unconnected::kWait, std::min(deadline, Clock::now() + kConnectTime)) &&
        // Says why there is no connection.
        !open(Link::Unconnected::kFail, Clock::now() + kGrace))
      fail(Code::kUnavailable, "it cannot be reached");
    if (is_new) upgrade(link, deadline);
    return link;
  } catch (...) {
    const std::lock_guard lock(mutex_);
    std::erase(busy_, link.get());
    throw;
  }
}

void ClientCalls::upgrade(std::unique_ptr<Link>& link, Time deadline) {
  {
    const std::lock_guard lock(mutex_);
    if (!may_upgrade_) return;
  }
  proto::Request request;
  introduce(request, deadline);
  request.mutable_upgrade();
  if (options_.transport == Transport::kSharedMemory)
    request.mutable_upgrade()->set_host(host_identity());
  link->send({.header = request.SerializeAsString(), .payload = {}}, deadline + kGrace);
  const proto::Upgraded offer = receive_reply(*link, deadline + kGrace).upgraded();
  const auto link_locally = [&] {
    return parameter_server::link_locally(
        {.socket = offer.socket(),
         .word = offer.word(),
         .server = {.pid = offer.pid(), .start_time = offer.start_time()}},
        options_.patience);
  };
  const auto link_directly = [&] {
    return parameter_server::link_directly(server_, security_, offer.direct_word(),
                                           options_.patience);
  };
  const bool replaced = (!offer.socket().empty() && replace(link, link_locally, deadline)) ||
                        (!offer.direct_word().empty() && replace(link, link_directly, deadline));
  const std::lock_guard lock(mutex_);
  if (!replaced) {
    may_upgrade_ = false;
    return;
  }
  channel_ = nullptr;  // nobody uses it, and it would be pinged all the time
  if (!heart_.joinable()) heart_ = start_thread([this] { beat_regularly(); });
}

bool ClientCalls::replace(std::unique_ptr<Link>& link,
                          const std::function<std::unique_ptr<Link>()>& open, Time deadline) {
  std::unique_ptr<Link> other;
  const auto exchange = [&] {
    const std::lock_guard lock(mutex_);
    if (cancelled_) fail(Code::kCancelled, "the client was cancelled");
    std::replace(busy_.begin(), busy_.end(), link.get(), other.get());
    link.swap(other);
  };
  try {
    other = open();
    exchange();
    link->connect(std::min(deadline, Clock::now() + kConnectTime));
    return true;
  } catch (const Error& error) {
    if (error.code() == Code::kCancelled) throw;
    if (other) exchange();
    return false;
  }
}

void ClientCalls::beat_regularly() {
  const auto has_ended = [](const std::unique_ptr<Link>& link) { return !link->beat(); };
  std::unique_lock lock(mutex_);
  while (!wake_.wait_for(lock, FrameSocket::kBeat, [this] { return ending_; }))
    std::erase_if(idle_, has_ended);
}

void ClientCalls::give_back(std::unique_ptr<Link> link) {
  const std::lock_guard lock(mutex_);
  has_answered_ = true;
  std::erase(busy_, link.get());
  idle_.push_back(std::move(link));
}

std::string ClientCalls::described_server() const {
  const std::string address = server_.text();
  return str("parameter server ",
             options_.server.empty() ? address : str(options_.server, " at ", address));
}

std::string ClientCalls::about_certificates(const Error& error) const {
  if (has_answered_ || error.code() != Code::kUnavailable || !is_hung_up(error.message()))
    return "";
  return str("; this task has ",
             security_.encrypted()
                 ? "certificates, and a server with those of another authority, or with none,"
                 : "no certificates, and a server that has some",
             " hangs up like this ", net::kTlsVariables);
}

Error ClientCalls::named(const Error& error) const {
  const std::string server = options_.server.empty() ? server_.text() : options_.server;
  return Error(error.code(),
               str(described_server(), ": ", error.message(), about_certificates(error)),
               error.peer().empty() ? server : error.peer());
}

void ClientCalls::introduce(proto::Request& request, Time deadline, milliseconds wait) const {
  cohort::proto::Caller& caller = *request.mutable_caller();
  caller.set_protocol(kProtocolVersion);
  caller.set_job_id(options_.job_id);
  caller.set_task(options_.task);
  caller.set_incarnation(options_.incarnation);
  // With each request, for each may be the first of a session.
  if (options_.consistency) write_consistency(*options_.consistency, request.mutable_consistency());
  const auto left =
      std::min(std::chrono::duration_cast<milliseconds>(deadline - Clock::now()), wait);
  request.set_timeout_ms(static_cast<uint64_t>(std::max<int64_t>(left.count(), 0)));
}

void ClientCalls::call(proto::Request& request, const Payload& payload, Time deadline,
                       const std::function<void(Link& link, Time until)>& receive,
                       milliseconds wait) {
  milliseconds pause = kFirstPause;
  for (Absence absence;;) {
    introduce(request, deadline, wait);
    std::unique_ptr<Link> link;
    try {
      link = take_link(deadline);
      link->send({.header = request.SerializeAsString(), .payload = payload}, deadline + kGrace);
      receive(*link, deadline + kGrace);
      return give_back(std::move(link));
    } catch (const Error& error) {
      std::unique_lock lock(mutex_);
      std::erase(busy_, link.get());
      const bool again = error.code() == Code::kUnavailable && !cancelled_;
      // The others have ended as well.
      if (error.code() == Code::kUnavailable) {
        idle_.clear();
        may_upgrade_ = options_.transport != Transport::kGrpc;
      }
      if (again && interrupted())
        throw named(
            Error(Code::kCancelled,
                  str("it is away, and this process has been asked to stop: ", error.message())));
      if (!again || Clock::now() + pause >= deadline) throw named(error);
      if (const auto seconds = absence.line_due(link != nullptr)) {
        const std::string why = error.message() + about_certificates(error);
        lock.unlock();
        options_.notice(str("cohort: ", options_.task, ": waiting for ", described_server(),
                            " since ", *seconds, " s: ", why));
        lock.lock();
      }
      wake_.wait_for(lock, pause, [this] { return cancelled_; });
      pause = std::min(2 * pause, kLongestPause);
    } catch (...) {  // there is no memory, and soon no link
      const std::lock_guard lock(mutex_);
      std::erase(busy_, link.get());
      throw;
    }
  }
}

proto::Reply ClientCalls::ask(proto::Request& request, const Payload& payload, Time deadline) {
  proto::Reply reply;
  call(request, payload, deadline,
       [&](Link& link, Time until) { reply = receive_reply(link, until); });
  return reply;
}

void ClientCalls::say(proto::Request& request, Time deadline) {
  std::unique_ptr<Link> link;
  {
    const std::lock_guard lock(mutex_);
    if (idle_.empty()) return;
    link = std::move(idle_.back());
    idle_.pop_back();
  }
  introduce(request, deadline);
  try {
    link->send({.header = request.SerializeAsString(), .payload = {}}, deadline);
    receive_reply(*link, deadline + kGrace);
  } catch (const Error&) {  // the server has gone, too
  }
}

}  // namespace cohort::parameter_server
