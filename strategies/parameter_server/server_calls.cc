#include "strategies/parameter_server/server_calls.h"

#include <optional>
#include <utility>

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/grpcpp.h>

#include "core/base/thread_sanitizer.h"
#include "strategies/parameter_server/arriving_request.h"
#include "strategies/parameter_server/wire.h"

namespace cohort::parameter_server {

// One call: requests and replies in turn. It keeps itself alive until gRPC is done with it.
//
// What may wait for others, such as for a shard's lock, is done on the server's own threads: those
// of gRPC are few, and while they wait nobody answers the pings by which callers know that the
// server lives.
class ServerCalls::Call final : public grpc::ServerGenericBidiReactor, public Caller {
 public:
  Call(ServerCalls& calls, coordination::CertifiedTasks tasks)
      : calls_(calls), service_(calls.service_), session_{.start = {}, .tasks = std::move(tasks)} {
    service_.opened();
  }

  void begin(std::shared_ptr<Call> self) {
    self_ = std::move(self);
    calls_.add_silent(self_);
    read();
  }
  // For a call that must not begin.
  void refuse_at_once(std::shared_ptr<Call> self, const Error& error) {
    self_ = std::move(self);
    refuse(error);
  }
  void turn_away(std::shared_ptr<Call> self, const Error& error) {
    self_ = std::move(self);
    finish(status_of(error));
  }

  // Of one that has not said who it is that calls: who does so may come again.
  void give_way() {
    finish(status_of(Error(Code::kUnavailable, "others need the place of a call that is silent")));
  }

  void OnReadDone(bool ok) override {
    COHORT_TSAN_ACQUIRE(this);
    if (!ok) return finish(grpc::Status::OK);  // the client has hung up
    try {
      receive();
    } catch (const std::exception& error) {
      refuse(refusal_of(error));
    }
  }

  void OnWriteDone(bool ok) override {
    COHORT_TSAN_ACQUIRE(this);
    if (!ok) return finish(grpc::Status::OK);
    if (cutter_->has_next()) return write_next();
    service_.pool().run([self = shared_from_self()] { self->write_next(); });
  }

  void OnCancel() override { finish(grpc::Status::CANCELLED); }

  void OnDone() override {
    COHORT_TSAN_ACQUIRE(this);
    calls_.forget_silent(*this);
    service_.closed(session_);
    std::shared_ptr<Call> last;
    const std::lock_guard lock(mutex_);
    request_.reset();
    last = std::move(self_);
  }

  bool may_wait() const override { return false; }
  void resume() override {
    const std::lock_guard lock(mutex_);
    if (std::exchange(paused_, false))
      start_read();
    else
      resumed_ = true;  // before the message at hand was used up
  }
  void reply() override { write_next(); }
  void refuse(const Error& error) override {
    service_.refused();
    finish(status_of(error));
  }
  bool has_gone() const override {
    const std::lock_guard lock(mutex_);
    return finished_;
  }

 private:
  void receive() {
    const MessageReader message(incoming_);
    request_.begin_message(service_, message.header(), message.payload_bytes(), shared_from_self(),
                           session_);
    if (std::exchange(is_silent_, false)) calls_.forget_silent(*this);
    // Once complete, its answer may be on its way, and the call be done with it.
    const std::shared_ptr<Exchange> exchange = request_.exchange();
    bool go_on = true;
    message.read([&](const Piece& part) { go_on = exchange->receive_kept(part); });
    if (request_.complete())
      return service_.pool().run(
          [self = shared_from_self(), exchange] { self->complete(*exchange); });
    const std::lock_guard lock(mutex_);
    paused_ = !std::exchange(resumed_, false) && !go_on;
    if (!paused_) start_read();
  }

  void complete(Exchange& exchange) {
    try {
      exchange.complete();
    } catch (const std::exception& error) {
      refuse(refusal_of(error));
    }
  }

  void read() {
    const std::lock_guard lock(mutex_);
    start_read();
  }
  // gRPC orders what it calls here, which ThreadSanitizer cannot see.
  void start_read() {
    if (finished_) return;
    COHORT_TSAN_RELEASE(this);
    StartRead(&incoming_);
  }

  void write_next() {
    try {
      if (!cutter_ || !cutter_->has_next()) {
        const std::shared_ptr<Exchange> exchange = present();
        if (exchange == nullptr) return;
        std::optional<Message> message = exchange->next_message();
        if (!message) return next_request();
        service_.sent(message->payload_bytes());
        cutter_.emplace(std::move(*message));
      }
      outgoing_ = cutter_->next();
    } catch (const std::exception& error) {
      return refuse(refusal_of(error));
    }
    const std::lock_guard lock(mutex_);
    if (finished_) return;
    COHORT_TSAN_RELEASE(this);
    StartWrite(&outgoing_);
  }

  // Null when the call has ended: it may end while another thread makes the reply.
  std::shared_ptr<Exchange> present() {
    const std::lock_guard lock(mutex_);
    return finished_ ? nullptr : request_.exchange();
  }

  void next_request() {
    cutter_.reset();
    const std::lock_guard lock(mutex_);
    request_.reset();
    resumed_ = false;
    start_read();
  }

  void finish(const grpc::Status& status) {
    const std::lock_guard lock(mutex_);
    if (!std::exchange(finished_, true)) Finish(status);
  }

  std::shared_ptr<Call> shared_from_self() {
    const std::lock_guard lock(mutex_);
    return self_;
  }

  ServerCalls& calls_;
  Service& service_;
  std::shared_ptr<Call> self_;
  bool is_silent_ = true;
  Service::Session session_;
  ArrivingRequest request_;
  grpc::ByteBuffer incoming_, outgoing_;
  std::optional<MessageCutter> cutter_;
  mutable std::mutex mutex_;
  bool paused_ = false, resumed_ = false, finished_ = false;
};

StreamServer::Reactor* ServerCalls::accept(coordination::CertifiedTasks tasks) {
  const auto call = std::make_shared<Call>(*this, std::move(tasks));
  const int most = service_.options().max_sessions;
  if (service_.sessions() > static_cast<uint64_t>(most) && !end_first_silent())
    call->refuse_at_once(call, Error(Code::kResourceExhausted, str("more than ", most, " calls")));
  else
    call->begin(call);
  return call.get();
}

StreamServer::Reactor* ServerCalls::turn_away(coordination::CertifiedTasks tasks,
                                              const Error& error) {
  const auto call = std::make_shared<Call>(*this, std::move(tasks));
  call->turn_away(call, error);
  return call.get();
}

void ServerCalls::add_silent(const std::shared_ptr<Call>& call) {
  const std::lock_guard lock(mutex_);
  silent_.push_back(call);
}

void ServerCalls::forget_silent(const Call& call) {
  const std::lock_guard lock(mutex_);
  std::erase_if(silent_, [&](const auto& silent) { return silent.get() == &call; });
}

bool ServerCalls::end_first_silent() {
  std::shared_ptr<Call> first;
  {
    const std::lock_guard lock(mutex_);
    if (silent_.empty()) return false;
    first = std::move(silent_.front());
    silent_.pop_front();
  }
  first->give_way();
  return true;
}

}  // namespace cohort::parameter_server
