#pragma once

#include <chrono>
#include <map>
#include <string>

namespace cohort::parameter_server {

// What people have been told: the same is news again after a minute. Bounded, whatever there is to
// tell. Not synchronised; the time is given.
class SaidLately {
 public:
  using Time = std::chrono::steady_clock::time_point;

  // Whether this is to be said now; then it counts as said.
  bool is_news(const std::string& what, Time now);

 private:
  std::map<std::string, Time> said_;
};

}  // namespace cohort::parameter_server
