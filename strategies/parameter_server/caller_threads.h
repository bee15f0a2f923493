#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "strategies/cluster/net/wake_up.h"
#include "strategies/parameter_server/exchange.h"
#include "strategies/parameter_server/service.h"

namespace cohort::parameter_server {

// The server's end of a connection without gRPC: requests and replies in turn, on one thread.
// Errors end the connection; kUnavailable and kCancelled: nobody is there to be told.
class CallerStream {
 public:
  struct Head {
    std::string header;
    uint64_t payload_bytes = 0;
  };

  virtual ~CallerStream() = default;
  // Makes the connection, and returns who calls. Errors also where that is nobody who may.
  virtual std::shared_ptr<Start> greet() = 0;
  // Tells the caller, who has been greeted, that it is served from now on.
  virtual void welcome() = 0;
  virtual SessionKind kind() const = 0;
  // A request's next message.
  virtual Head receive_head() = 0;
  // Gives an exchange the next bytes of the message's payload, of which `left` are to come, and
  // returns how many. `go_on` is what the exchange has said.
  virtual uint64_t receive_part(Exchange& exchange, uint64_t left, bool& go_on) = 0;
  // For values that are sent from where they are made; may be null.
  virtual TakeMemory memory() { return nullptr; }
  virtual void send(const Message& message) = 0;
  // The connection's last words.
  virtual void refuse(const Error& error) = 0;
  // Sleeps until signalled, by wake_up(). The caller hears beats meanwhile.
  virtual void wait_until(const std::function<bool()>& ready) = 0;
  virtual std::shared_ptr<net::WakeUp> wake_up() const = 0;
  // Nothing of what came is read any more.
  virtual void end_reading() {}

  // What may wait for others of this process, and does not use the connection, is done between
  // these two: then the caller hears beats, too.
  virtual void begin_work() {}
  virtual void end_work() {}

  // From any thread, once in a while: tells the caller that this process lives.
  virtual void beat() = 0;
  // From any thread: ends all waiting.
  virtual void cancel() = 0;
};

// A time in which a stream's thread is at work, as CallerStream::begin_work.
class AtWork {
 public:
  explicit AtWork(CallerStream& stream) : stream_(stream) { stream_.begin_work(); }
  ~AtWork() { stream_.end_work(); }
  AtWork(const AtWork&) = delete;
  AtWork& operator=(const AtWork&) = delete;

 private:
  CallerStream& stream_;
};

// Serves callers, each on a thread of its own; one more beats for all. A caller is a session from
// its greeting on: before that it is a stranger, who takes no place from others. Thread-safe.
class CallerThreads {
 public:
  // So many are greeted at a time, each on its thread; the tasks of a large job come together.
  static constexpr int64_t kMaxStrangers = 128;

  // Of `service`, which must outlive it.
  explicit CallerThreads(Service& service);
  // Requests under way have a moment to end.
  ~CallerThreads();
  CallerThreads(const CallerThreads&) = delete;
  CallerThreads& operator=(const CallerThreads&) = delete;

  // Turned away when there are too many, whoever it is goes on by gRPC.
  void serve(std::unique_ptr<CallerStream> stream);

 private:
  class Connection;

  void beat_regularly();
  int64_t strangers();
  // Lets go of what connections that have ended hold.
  void remove_ended();

  Service& service_;
  std::mutex mutex_;
  std::condition_variable changed_, end_;
  bool ending_ = false;
  std::list<std::unique_ptr<Connection>> connections_;
  std::thread heart_;  // last: it uses what is above
};

}  // namespace cohort::parameter_server
