#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "strategies/parameter_server/roster.h"

namespace cohort::parameter_server {

// Words that callers are given by gRPC, which has made sure who they are, and that they say where
// they come without it. Thread-safe.
class Invitations {
 public:
  // A word, which holds once, for some seconds; empty while too many have not been used.
  std::string invite(const std::shared_ptr<Start>& caller);
  // Who was given this word. kPermissionDenied.
  std::shared_ptr<Start> redeem(const std::string& word);

 private:
  struct Invited {
    std::shared_ptr<Start> caller;
    std::chrono::steady_clock::time_point until;
  };
  std::mutex mutex_;
  std::map<std::string, Invited> invited_;  // by word
};

}  // namespace cohort::parameter_server
