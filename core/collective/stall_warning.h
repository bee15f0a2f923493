#pragma once

#include <chrono>
#include <functional>
#include <string>

namespace cohort {

// A line for people, once in a call, that says for which ranks it waits: of the first rank of those
// that have come. Likewise once in the wait for a message whose other end has not come; not in one
// for a message of any rank, which waits for nobody in particular.
struct StallWarning {
  // How long a rank waits before that; 0: there is no such line.
  std::chrono::milliseconds after{60'000};
  // Gets the line, without a newline, on a thread that waits; where empty, it goes to standard
  // error.
  std::function<void(const std::string& line)> notice = {};

  // Whether it is time for the line.
  bool is_due(std::chrono::steady_clock::duration waited) const {
    return after.count() > 0 && waited >= after;
  }
  // "worker:0 (rank 0) has waited for 60 s in an all-reduce ... for worker:1 (rank 1)".
  void say(const std::string& who, const std::string& call, const std::string& missing) const;
};

// What the line calls the wait for a message: "a send with tag 5", "a receive".
std::string describe_message(bool is_send, int tag);

}  // namespace cohort
