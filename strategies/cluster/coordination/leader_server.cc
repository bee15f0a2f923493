#include "strategies/cluster/coordination/leader_server.h"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <iterator>
#include <mutex>
#include <new>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <grpcpp/grpcpp.h>

#include "core/base/error.h"
#include "core/base/start_threads.h"
#include "proto/coordination.grpc.pb.h"
#include "strategies/cluster/coordination/grpc_credentials.h"
#include "strategies/cluster/coordination/grpc_server.h"
#include "strategies/cluster/coordination/leader_state.h"
#include "strategies/cluster/coordination/limits.h"
#include "strategies/cluster/net/descriptor.h"
#include "strategies/cluster/net/socket.h"

namespace cohort::coordination {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// Of messages for a member, in memory. While there are more nothing is read of what it says, so
// that who asks and takes no answers has a bounded number of them.
constexpr size_t kMaxUnsentBytes = 8 << 20;
// Of what a member says first, which is that it joins: from strangers nothing long is taken.
constexpr int kMaxFirstMessageBytes = 4096;

// How long a host may leave a heartbeat unanswered. The system counts from when it sends it again,
// 0.2 to 0.4 s after the first time; together they are over soon after `suspect`.
milliseconds longest_unanswered(const Timing& timing) {
  constexpr milliseconds kFirstRepetition(200);
  return std::max(timing.heartbeat, timing.suspect - 2 * timing.heartbeat - kFirstRepetition);
}

// "10.0.0.1" of gRPC's "ipv4:10.0.0.1:4444" or, with a guard in between, of
// "unix-abstract:10.0.0.1:4444", or nothing; IPv6 addresses have brackets, which may be escaped.
std::string host_of(const std::string& peer) {
  const size_t begin = peer.find(':'), end = peer.rfind(':');
  return begin < end ? peer.substr(begin + 1, end - begin - 1) : "";
}

GrpcServer::Options options_for(Timing timing) {
  return {.name = "leader",
          .message_bytes = kMaxMessageBytes,
          .usual_message_bytes = 64 << 10,
          .first_message_bytes = kMaxFirstMessageBytes,
          .metadata_bytes = 4096,
          .calls_per_connection = 4,
          // Who connects has to say something soon, or is a waste of descriptors.
          .handshake = timing.dead,
          .idle = timing.dead,
          // Heartbeats find silent peers; this closes what is left of a connection to one.
          .keepalive = timing.dead,
          .keepalive_timeout = 2 * timing.dead,
          // For the last messages to reach members.
          .farewell = seconds(2),
          // A host that answers no longer is gone sooner than a process that says nothing: every
          // heartbeat goes out, and a frozen process has a system that answers for it; but to one
          // that leaves more untaken than its system has room for, none goes out any more.
          .prepare = [limit = longest_unanswered(timing)](const net::Descriptor& socket) {
            net::repeat_often(socket.get());
            net::break_when_unanswered(socket.get(), limit);
          }};
}

}  // namespace

// One lock guards the state; it is held while messages are queued, never while they travel.
class LeaderServer::Service : public proto::Coordination::CallbackService {
 public:
  Service(const Roster& roster, const std::string& job_id, Timing timing, const Security& security,
          std::function<void(const std::string&)> notice)
      : security_(security),
        notice_(std::move(notice)),
        clock_(std::max<milliseconds>(seconds(1), 2 * timing.heartbeat)),
        state_(roster, job_id, timing, clock_.now()) {
    // By it messages know what they take (SpaceUsedLong()). Protobuf makes it when it is asked for
    // it first, and ends the process where there is no memory for that.
    proto::FromLeader::descriptor();
    GrpcServer::Options options = options_for(timing);
    options.refused = [this](const std::string& host, const Error& error) { refused(host, error); };
    server_.emplace(*roster.leader(), security, std::move(options),
                    [this](grpc::ServerBuilder& builder) { builder.RegisterService(this); });
    ticker_ = start_thread([this] { tick(); });
  }

  ~Service() override {
    if (!ticker_.joinable()) return;
    {
      std::lock_guard lock(mutex_);
      state_.stop();
      stopping_ = true;
    }
    wake_.notify_all();
    ticker_.join();
  }

  using proto::Coordination::CallbackService::Attend;
  grpc::ServerBidiReactor<proto::FromMember, proto::FromLeader>* Attend(
      grpc::CallbackServerContext* context) override {
    const auto session = std::make_shared<Session>(
        *this, tasks_of(*context->auth_context(), security_), host_of(context->peer()));
    {
      std::lock_guard lock(mutex_);
      if (!stopping_) state_.opened(session, read_clock());
    }
    session->begin(session);
    return session.get();
  }

 private:
  // One call. It keeps itself alive until gRPC is done with it.
  class Session : public grpc::ServerBidiReactor<proto::FromMember, proto::FromLeader>,
                  public Connection {
   public:
    Session(Service& service, CertifiedTasks tasks, std::string host)
        : service_(service), tasks_(std::move(tasks)), host_(std::move(host)) {}

    void begin(std::shared_ptr<Session> self) {
      self_ = std::move(self);
      StartRead(&incoming_);
    }

    void send(const proto::FromLeader& message) override {
      std::lock_guard lock(mutex_);
      if (ending_ || finished_) return;
      outgoing_.push_back(message);
      unsent_bytes_ += outgoing_.back().SpaceUsedLong();
      if (outgoing_.size() == 1) StartWrite(&outgoing_.front());
    }

    void drop_answers() override {
      std::lock_guard lock(mutex_);
      if (outgoing_.empty()) return;
      const auto dropped =
          std::remove_if(std::next(outgoing_.begin()), outgoing_.end(),
                         [](const proto::FromLeader& message) { return message.has_reply(); });
      outgoing_.erase(dropped, outgoing_.end());
      unsent_bytes_ = 0;
      for (const proto::FromLeader& message : outgoing_) unsent_bytes_ += message.SpaceUsedLong();
    }

    void finish() override {
      std::lock_guard lock(mutex_);
      ending_ = true;
      if (outgoing_.empty()) finish_now();
    }

    size_t unsent_bytes() const override {
      std::lock_guard lock(mutex_);
      return unsent_bytes_;
    }

    CertifiedTasks tasks() const override { return tasks_; }
    std::string host() const override { return host_; }

    void OnReadDone(bool ok) override {
      if (!ok) return end();
      if (incoming_.has_join() || incoming_.has_ask()) join();
      service_.received(self_, incoming_);
      incoming_.Clear();
      std::lock_guard lock(mutex_);
      read();
    }

    void OnWriteDone(bool ok) override {
      if (ok && !is_read()) service_.took(self_);  // else it is heard by what it says
      std::lock_guard lock(mutex_);
      unsent_bytes_ -= outgoing_.front().SpaceUsedLong();
      outgoing_.pop_front();
      if (finished_) return;
      if (!ok) return finish_now();
      if (!is_read_) read();
      if (!outgoing_.empty()) return StartWrite(&outgoing_.front());
      if (ending_) finish_now();
    }

    void OnCancel() override { end(); }

    void OnDone() override {
      const std::shared_ptr<Session> last = std::move(self_);
      service_.closed(last);
    }

   private:
    // The member has gone, or says what gRPC does not take.
    void end() {
      service_.closed(self_);
      std::lock_guard lock(mutex_);
      ending_ = true;
      finish_now();
    }

    bool is_read() const {
      std::lock_guard lock(mutex_);
      return is_read_;
    }

    // Or leaves it to OnWriteDone. REQUIRES: mutex_ held, no read under way.
    void read() {
      is_read_ = unsent_bytes_ < kMaxUnsentBytes;
      if (is_read_) StartRead(&incoming_);
    }

    void join() {
      std::lock_guard lock(mutex_);
      has_joined_ = true;
    }

    // REQUIRES: mutex_ held.
    void finish_now() {
      if (std::exchange(finished_, true)) return;
      if (has_joined_) return Finish(grpc::Status::OK);
      Finish({grpc::StatusCode::INVALID_ARGUMENT,
              str(kJoinExpected, ", of at most ", kMaxFirstMessageBytes, " bytes")});
    }

    Service& service_;
    const CertifiedTasks tasks_;
    const std::string host_;
    std::shared_ptr<Session> self_;
    proto::FromMember incoming_;
    mutable std::mutex mutex_;                // taken inside the service's
    std::deque<proto::FromLeader> outgoing_;  // the first is being written
    size_t unsent_bytes_ = 0;                 // of those
    bool has_joined_ = false;                 // or has asked to
    bool is_read_ = true;                     // a read is under way, or being handled
    bool ending_ = false, finished_ = false;
  };

  // REQUIRES: mutex_ held.
  RunningClock::Time read_clock() {
    const auto now = clock_.now();
    state_.was_away(clock_.last_step(), now);
    return now;
  }

  void refused(const std::string& host, const Error& error) {
    {
      std::lock_guard lock(mutex_);
      state_.refused(host, error, read_clock());
    }
    wake_.notify_all();
  }

  void received(const std::shared_ptr<Session>& session, const proto::FromMember& message) {
    std::vector<std::string> notices;
    {
      std::lock_guard lock(mutex_);
      state_.received(session, message, read_clock());
      notices = state_.take_notices();
    }
    say(notices);
    // A heartbeat makes nothing due earlier.
    if (!message.has_heartbeat()) wake_.notify_all();
  }

  void say(const std::vector<std::string>& lines) const {
    try {
      for (const std::string& line : lines) notice_(line);
    } catch (const std::bad_alloc&) {  // the job can do without
    }
  }

  void took(const std::shared_ptr<Session>& session) {
    std::lock_guard lock(mutex_);
    state_.took(session, read_clock());
  }

  void closed(const std::shared_ptr<Session>& session) {
    std::lock_guard lock(mutex_);
    read_clock();  // a connection may be the first thing to be heard of after a stop
    state_.closed(session);
  }

  void tick() {
    std::unique_lock lock(mutex_);
    while (!stopping_) {
      const auto now = read_clock();
      state_.tick(now);
      if (const auto notices = state_.take_notices(); !notices.empty()) {
        lock.unlock();
        say(notices);
        lock.lock();
        continue;
      }
      wake_.wait_for(lock, state_.next_tick(now) - now);
    }
  }

  const Security security_;
  const std::function<void(const std::string&)> notice_;
  std::mutex mutex_;
  std::condition_variable wake_;
  RunningClock clock_;
  LeaderState state_;
  bool stopping_ = false;
  std::thread ticker_;
  std::optional<GrpcServer> server_;  // last: its calls use the rest
};

LeaderServer::LeaderServer(const Roster& roster, const std::string& job_id, Timing timing,
                           const Security& security, std::function<void(const std::string&)> notice)
    : service_(std::make_unique<Service>(roster, job_id, timing, security, std::move(notice))) {}

LeaderServer::~LeaderServer() = default;

}  // namespace cohort::coordination
