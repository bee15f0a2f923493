#include "strategies/cluster/coordination/host_probe.h"

#include <cerrno>
#include <poll.h>

#include "core/base/error.h"
#include "strategies/cluster/net/socket.h"

namespace cohort::coordination {
namespace {

constexpr int kIntervalsAfterAnswer = 5;

}  // namespace

bool HostProbe::ask(Time now, std::chrono::milliseconds interval) {
  if (is_answered()) {
    forget();
    next_question_ = now + kIntervalsAfterAnswer * interval;
  }
  if (now < next_question_) return false;
  next_question_ = now + interval;
  try {
    questions_.push_back(net::start_connecting(peer_));
  } catch (const Error& error) {  // no way there; or this process has no socket to ask by
    if (error.code() != Code::kUnavailable) return false;
  }
  return unanswered_++ >= kEnough;
}

void HostProbe::forget() {
  questions_.clear();
  unanswered_ = 0;
  next_question_ = {};
}

// A refusal is an answer, too; what a router says is none.
bool HostProbe::is_answered() {
  bool answered = false;
  questions_.remove_if([&](const net::Descriptor& question) {
    pollfd polled{question.get(), POLLOUT, 0};
    if (poll(&polled, 1, 0) != 1) return false;
    const int error = net::connection_error(question.get());
    answered = answered || error == 0 || error == ECONNREFUSED || error == ECONNRESET;
    return true;
  });
  return answered;
}

}  // namespace cohort::coordination
