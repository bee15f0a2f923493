#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <list>
#include <mutex>
#include <thread>

namespace cohort::parameter_server {

// Calls that wait for something to come about, without a thread for each. Thread-safe.
class WaitingRoom {
 public:
  using Time = std::chrono::steady_clock::time_point;
  struct Call {
    std::function<bool()> is_ready;  // asked again after each look()
    Time deadline;
    // Called once, on the room's thread; but where it throws for want of memory, at the next look
    // again.
    std::function<void(bool ready)> proceed;
  };

  WaitingRoom();
  // Calls that still wait are dropped.
  ~WaitingRoom();
  WaitingRoom(const WaitingRoom&) = delete;
  WaitingRoom& operator=(const WaitingRoom&) = delete;

  void wait(Call call);
  // Something has come about.
  void look();

 private:
  void run();

  std::mutex mutex_;
  std::condition_variable wake_;
  std::list<Call> calls_;  // but for those that are looked at just now
  size_t waiting_ = 0;     // with those
  bool changed_ = false, stopping_ = false;
  std::thread thread_;
};

}  // namespace cohort::parameter_server
