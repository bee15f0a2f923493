#include "strategies/parameter_server/caller_threads.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "core/base/error.h"
#include "core/base/start_threads.h"
#include "strategies/parameter_server/arriving_request.h"
#include "strategies/parameter_server/frame_socket.h"

namespace cohort::parameter_server {
namespace {

// How long requests under way may take when the server ends.
constexpr std::chrono::milliseconds kFarewell(200);
// Callers look every kBeat.
constexpr auto kBeatInterval = FrameSocket::kBeat / 2;

// The way back to a caller whose thread waits for the answer.
class WaitingCaller final : public Caller {
 public:
  explicit WaitingCaller(std::shared_ptr<net::WakeUp> wake) : wake_(std::move(wake)) {}

  void resume() override {
    resumed_ = true;
    wake_->signal();
  }
  void reply() override { answer(std::nullopt); }
  void refuse(const Error& error) override { answer(error); }
  bool has_gone() const override { return gone_; }

  // For its thread.
  void leave() { gone_ = true; }
  bool take_resumed() { return resumed_.exchange(false); }
  // Whether there is an answer; throws what the request is refused with.
  bool take_answer() {
    if (!answered_.exchange(false, std::memory_order_acquire)) return false;
    if (const auto error = std::exchange(error_, std::nullopt)) throw Error(*error);
    return true;
  }

 private:
  void answer(const std::optional<Error>& error) {
    error_ = error;
    answered_.store(true, std::memory_order_release);
    wake_->signal();
  }

  const std::shared_ptr<net::WakeUp> wake_;
  std::atomic<bool> resumed_ = false, answered_ = false, gone_ = false;
  std::optional<Error> error_;
};

}  // namespace

// One caller's connection, with its thread.
class CallerThreads::Connection {
 public:
  Connection(CallerThreads& all, std::unique_ptr<CallerStream> stream)
      : all_(all),
        service_(all.service_),
        stream_(std::move(stream)),
        caller_(std::make_shared<WaitingCaller>(stream_->wake_up())) {
    session_.kind = stream_->kind();
    thread_ = start_thread([this] { run(); });
  }
  ~Connection() { thread_.join(); }

  // Of the mutex of all.
  bool has_ended() const { return ended_; }
  bool is_idle() const { return ended_ || idle_; }
  bool is_stranger() const { return !ended_ && !greeted_; }

  void beat() { stream_->beat(); }
  void cancel() { stream_->cancel(); }

 private:
  void run() {
    try {
      begin_session();
      for (;;) serve();
    } catch (const std::exception& error) {
      end_with(refusal_of(error));
    }
    caller_->leave();
    stream_->cancel();
    if (is_open_) service_.closed(session_);
    mark([this] { ended_ = true; });
  }

  // The session is there before the caller is told: until then it has one by gRPC, so that at no
  // time nobody seems to be connected.
  void begin_session() {
    const std::shared_ptr<Start> caller = stream_->greet();
    mark([this] { greeted_ = true; });
    if (service_.sessions() >= static_cast<uint64_t>(service_.options().max_sessions))
      fail(Code::kUnavailable, "there are too many sessions");
    service_.opened();
    is_open_ = true;
    service_.enter(caller, session_);
    stream_->welcome();
  }

  template <typename F>
  void mark(const F& change) {
    const std::lock_guard lock(all_.mutex_);
    change();
    all_.changed_.notify_all();
  }

  void end_with(const Error& error) {
    request_.reset();
    stream_->end_reading();
    // The caller has gone, or the server ends.
    if (error.code() == Code::kUnavailable || error.code() == Code::kCancelled) return;
    service_.refused();
    try {
      stream_->refuse(error);
    } catch (const std::exception&) {  // nobody is there to be told
    }
  }

  // One request.
  void serve() {
    mark([this] { idle_ = true; });
    CallerStream::Head head = stream_->receive_head();
    mark([this] { idle_ = false; });
    receive(std::move(head));
    complete();
    stream_->wait_until([this] { return caller_->take_answer(); });
    const TakeMemory take = stream_->memory();
    while (const auto message = next_message(take)) {
      service_.sent(message->payload_bytes());
      stream_->send(*message);
    }
    request_.reset();
  }

  void complete() {
    const AtWork at_work(*stream_);
    request_.exchange()->complete();
  }

  std::optional<Message> next_message(const TakeMemory& take) {
    const AtWork at_work(*stream_);
    return request_.exchange()->next_message(take);
  }

  void begin_message(const CallerStream::Head& head) {
    const AtWork at_work(*stream_);
    request_.begin_message(service_, head.header, head.payload_bytes, caller_, session_);
  }

  void receive(CallerStream::Head head) {
    for (;;) {
      begin_message(head);
      for (uint64_t left = head.payload_bytes; left > 0;) {
        bool go_on = true;
        left -= stream_->receive_part(*request_.exchange(), left, go_on);
        if (!go_on && (left > 0 || !request_.complete()))
          stream_->wait_until([this] { return caller_->take_resumed(); });
      }
      if (request_.complete()) return;
      head = stream_->receive_head();
    }
  }

  CallerThreads& all_;
  Service& service_;
  const std::unique_ptr<CallerStream> stream_;
  const std::shared_ptr<WaitingCaller> caller_;
  Service::Session session_;
  bool is_open_ = false;
  ArrivingRequest request_;
  bool greeted_ = false, idle_ = false, ended_ = false;  // of the mutex of all
  std::thread thread_;
};

CallerThreads::CallerThreads(Service& service)
    : service_(service), heart_(start_thread([this] { beat_regularly(); })) {}

CallerThreads::~CallerThreads() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  end_.notify_all();
  heart_.join();
  {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, kFarewell, [this] {
      return std::ranges::all_of(connections_, [](const auto& c) { return c->is_idle(); });
    });
    for (const auto& connection : connections_) connection->cancel();
  }
  connections_.clear();
}

void CallerThreads::serve(std::unique_ptr<CallerStream> stream) {
  remove_ended();
  if (strangers() >= kMaxStrangers) return;
  try {
    // Its place first: nobody else would end its thread.
    std::list<std::unique_ptr<Connection>> one(1);
    one.front() = std::make_unique<Connection>(*this, std::move(stream));
    const std::lock_guard lock(mutex_);
    connections_.splice(connections_.end(), one);
  } catch (const std::exception&) {  // no descriptors, or no threads
  }
}

void CallerThreads::beat_regularly() {
  std::unique_lock lock(mutex_);
  while (!end_.wait_for(lock, kBeatInterval, [this] { return ending_; })) {
    for (const auto& connection : connections_) connection->beat();
    lock.unlock();
    remove_ended();
    lock.lock();
  }
}

int64_t CallerThreads::strangers() {
  const std::lock_guard lock(mutex_);
  return std::ranges::count_if(connections_, [](const auto& c) { return c->is_stranger(); });
}

void CallerThreads::remove_ended() {
  std::list<std::unique_ptr<Connection>> ended;
  const std::lock_guard lock(mutex_);
  for (auto at = connections_.begin(); at != connections_.end();) {
    const auto next = std::next(at);
    if ((*at)->has_ended()) ended.splice(ended.end(), connections_, at);
    at = next;
  }
}

}  // namespace cohort::parameter_server
