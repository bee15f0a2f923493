#include "strategies/collective/tcp/exchange.h"

#include <algorithm>
#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <thread>

#include "core/base/comma_separated.h"
#include "strategies/cluster/net/sending_time.h"
#include "strategies/cluster/net/socket.h"

namespace cohort::tcp {
namespace {

// Less than it takes to put a thread to sleep and wake it.
constexpr std::chrono::microseconds kSpinTime{50};
// How long other ranks have to tell what they do when something is wrong, and when it takes long.
constexpr std::chrono::milliseconds kMismatchGrace{2000}, kWaitingGrace{500};
// After so long without a call, others may have ended the group, of which nobody has looked.
constexpr std::chrono::milliseconds kUnheard{1};
// How long a rank that leaves waits for its last bytes to get through.
constexpr std::chrono::milliseconds kFlushTime{1000};

std::string in_seconds(std::chrono::milliseconds time) {
  return str(static_cast<double>(time.count()) / 1000, " s");
}

}  // namespace

Exchange::Exchange(Control& control, std::vector<net::Stream> links, bool check_payloads,
                   std::chrono::milliseconds timeout, StallWarning stall, bool spin)
    : control_(control),
      timeout_(timeout),
      stall_(std::move(stall)),
      spin_(spin),
      connections_(make_connections(control, std::move(links), check_payloads)),
      given_up_(connections_.size()) {
  control_.add_listener(&wake_up_);
}

Exchange::~Exchange() { control_.remove_listener(&wake_up_); }

void Exchange::run(const Call& call, Operation& operation, const Memory* blocks) {
  const auto now = Clock::now();
  if (now - last_ended_ > kUnheard) control_.read_notices();
  control_.check(++sequence_);
  call_ = &call;
  operation_ = &operation;
  blocks_ = blocks;
  fingerprint_ = fingerprint(call, sequence_);
  sent_rounds_ = 0;
  heard_rounds_ = 0;
  sender_ = receiver_ = -1;
  is_wrong_ = has_reported_ = has_heard_ = false;
  may_warn_ = stall_.after.count() > 0;
  deadline_ = now + timeout_;
  idle_ = false;
  for (auto& connection : connections_)
    if (connection != nullptr) {
      connection->forget_output();
      connection->unpark();
    }
  try {
    operation.begin(*this);
    send_rounds();
    move_until_done();
    last_ended_ = Clock::now();
  } catch (...) {
    for (auto& connection : connections_)
      if (connection != nullptr) connection->forget_output();
    throw;
  }
}

FrameHeader Exchange::header(FrameKind kind) const {
  return {.kind = kind, .sequence = fingerprint_.sequence, .content = fingerprint_.content};
}

void Exchange::unpark() {
  for (auto& connection : connections_)
    if (connection != nullptr) connection->unpark();
}

void Exchange::report_sizes(int sender, int receiver) {
  sender_ = sender;
  receiver_ = receiver;
  is_wrong_ = true;
}

int Exchange::rounds() const {
  int rounds = 0;
  while ((1 << rounds) < size()) ++rounds;
  return rounds;
}

// In round k a rank tells the one 2^k places before it what it has heard so far, which is itself
// and the 2^k - 1 ranks that follow it.
void Exchange::send_rounds() {
  if (!operation_->may_join()) return;
  while (sent_rounds_ < rounds() &&
         (heard_rounds_ & ((1u << sent_rounds_) - 1)) == (1u << sent_rounds_) - 1) {
    const int distance = 1 << sent_rounds_;
    Stream& out = stream((rank() + size() - distance) % size(), kRounds);
    out = {.header = header(FrameKind::kRound), .memory = blocks_, .empty_frame = true};
    out.header.index = static_cast<uint64_t>(sent_rounds_);
    if (blocks_ != nullptr)
      out.end = out.ready = blocks_->bytes() / size() * std::min(distance, size() - distance);
    ++sent_rounds_;
  }
  if (heard_rounds_ == (1u << rounds()) - 1 && sent_rounds_ == rounds())
    control_.set_joined(sequence_);
}

bool Exchange::accept(int peer, const FrameHeader& header, Destination& destination) {
  if (header.sequence > sequence_) return false;
  if (header.sequence < sequence_ || header.content != fingerprint_.content) {
    is_wrong_ = true;
    return false;
  }
  if (header.kind != FrameKind::kRound) return operation_->accept(*this, peer, header, destination);
  const int distance = header.index < 31 ? 1 << header.index : 0;
  const int64_t block = blocks_ == nullptr ? 0 : blocks_->bytes() / size();
  if (distance == 0 || distance >= size() || (rank() + distance) % size() != peer ||
      (heard_rounds_ & (1u << header.index)) != 0 ||
      header.length != block * std::min(distance, size() - distance))
    refuse_frame(peer);
  destination = {blocks_, block * distance};
  return true;
}

void Exchange::arrived(int peer, const FrameHeader& header) {
  if (header.kind == FrameKind::kRound)
    heard_rounds_ |= 1u << header.index;
  else
    operation_->arrived(*this, peer, header);
  send_rounds();
}

bool Exchange::is_done() const {
  return heard_rounds_ == (1u << rounds()) - 1 && sent_rounds_ == rounds() &&
         operation_->is_complete() &&
         std::none_of(connections_.begin(), connections_.end(), [](const auto& connection) {
           return connection != nullptr && connection->is_open() && connection->has_output();
         });
}

void Exchange::move_until_done() {
  try {
    while (!is_done()) {
      bool moved = false;
      for (auto& connection : connections_)
        if (connection != nullptr) {
          moved |= connection->send_some();
          moved |= connection->receive_some(*this);
        }
      if (moved) {
        idle_ = false;
      } else {
        look_after_connections();
        control_.check(sequence_);
        if (is_wrong_ || (!has_reported_ && control_.wants_report(sequence_))) diagnose(false);
        wait();
      }
    }
  } catch (const Error& error) {
    control_.end(error, sequence_ - 1);
    control_.check(sequence_);
    throw;
  }
}

void Exchange::look_after_connections() {
  for (auto& connection : connections_) {
    if (connection == nullptr || connection->is_open()) continue;
    const int peer = connection->peer();
    if (connection->is_corrupt())
      throw Error(Code::kDataLoss, str(control_.name(peer), ' ', connection->failure()),
                  control_.task(peer));
    if (given_up_[static_cast<size_t>(peer)]) continue;
    given_up_[static_cast<size_t>(peer)] = true;
    connection->forget_output();
    control_.lost(peer, connection->failure(), sequence_);
  }
}

void Exchange::wait() {
  const auto now = Clock::now();
  if (!idle_) idle_since_ = now;
  idle_ = true;
  if (spin_ && now - idle_since_ < kSpinTime) return;
  if (now >= deadline_) return diagnose(true);
  auto until = std::min(deadline_, control_.look_after_hosts(idle_since_, sequence_));
  if (may_warn_) {
    if (stall_.is_due(now - (deadline_ - timeout_))) return warn();
    until = std::min(until, deadline_ - timeout_ + stall_.after);
  }
  if (const auto patience = control_.patience()) {
    until = std::min(until, idle_since_ + *patience);
    if (now >= until) fail(Code::kAborted, "what was to be finished does not end");
  }
  poll_once(until, true);
}

void Exchange::poll_once(Clock::time_point until, bool data) {
  polled_.clear();
  control_.add_polled(wake_up_, polled_);
  const size_t of_control = polled_.size();
  for (const auto& connection : connections_)
    if (data && connection != nullptr && connection->is_open()) {
      const int in = connection->is_parked() ? 0 : POLLIN,
                out = connection->has_output() ? POLLOUT : 0;
      if (in | out) polled_.push_back({connection->fd(), static_cast<short>(in | out), 0});
    }
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now()).count();
  poll(polled_.data(), polled_.size(), static_cast<int>(std::clamp<int64_t>(left, 0, 1'000'000)));
  if (polled_[0].revents != 0) wake_up_.clear();
  if (std::any_of(polled_.begin() + 1, polled_.begin() + static_cast<std::ptrdiff_t>(of_control),
                  [](const pollfd& p) { return p.revents != 0; }))
    control_.read_notices();
}

void Exchange::diagnose(bool timed_out) {
  has_reported_ = true;
  control_.report({.kind = Notice::Kind::kReport,
                   .sequence = sequence_,
                   .text = describe(*call_),
                   .content = fingerprint_.content,
                   .sender = sender_,
                   .receiver = receiver_});
  const auto until = Clock::now() + (is_wrong_ ? kMismatchGrace : kWaitingGrace);
  while (!control_.missing_reports(sequence_).empty() && Clock::now() < until) {
    poll_once(until, false);
    control_.check(sequence_);
  }
  if (const auto error = verdict(timed_out)) throw *error;
}

void Exchange::warn() {
  may_warn_ = false;
  if (!has_reported_) diagnose(false);
  const std::vector<int> missing = absent();
  int first = 0;
  while (std::find(missing.begin(), missing.end(), first) != missing.end()) ++first;
  if (!missing.empty() && first == rank())
    stall_.say(control_.name(rank()), described(), names(missing));
}

std::optional<Error> Exchange::verdict(bool timed_out) const {
  const uint64_t number = number_.value_or(sequence_);
  std::vector<std::optional<Notice>> reports;
  for (int p = 0; p < size(); ++p) reports.push_back(control_.report_of(p, sequence_));
  const std::optional<Notice>* first = nullptr;
  for (auto& report : reports) {
    if (!report) continue;
    if (first == nullptr) first = &report;
    if (report->content != (*first)->content)
      return mismatch(number, static_cast<int>(first - reports.data()), (*first)->text,
                      static_cast<int>(&report - reports.data()), report->text);
  }
  for (auto& report : reports) {
    if (!report || report->sender < 0 || report->receiver < 0 || report->sender >= size() ||
        report->receiver >= size())
      continue;
    const auto& sender = reports[static_cast<size_t>(report->sender)];
    const auto& receiver = reports[static_cast<size_t>(report->receiver)];
    // Whoever has found that waits for both, and tells.
    if (!(sender && receiver) && !timed_out && !is_wrong_) continue;
    return mismatch(number, report->sender, sender ? sender->text : "other sizes", report->receiver,
                    receiver ? receiver->text : "other sizes");
  }
  if (!timed_out && !is_wrong_) return std::nullopt;
  if (!timed_out)
    return mismatch(number, rank(), describe(*call_), "another rank for something else");
  const std::vector<int> missing = absent();
  std::vector<int> awaited;
  for (int p = 0; p < size(); ++p)
    if (p != rank() && operation_->expects(p)) awaited.push_back(p);
  return Error(Code::kDeadlineExceeded,
               str(control_.name(rank()), " has waited for ", in_seconds(timeout_), " in ",
                   described(), " for ",
                   !missing.empty()   ? names(missing) + ", which did not make the call"
                   : !awaited.empty() ? names(awaited) + ", whose data did not come"
                                      : "the others to take its data"),
               !missing.empty()   ? control_.task(missing[0])
               : !awaited.empty() ? control_.task(awaited[0])
                                  : "");
}

// Who has not made this call, but for those that wait in the one before, as this rank does here.
std::vector<int> Exchange::absent() const {
  const std::vector<int> missing = control_.missing_reports(sequence_);
  std::vector<int> silent;
  for (const int peer : missing)
    if (!control_.report_of(peer, sequence_ - 1)) silent.push_back(peer);
  return silent.empty() ? missing : silent;
}

std::string Exchange::names(const std::vector<int>& peers) const {
  const auto name = [this](int peer) { return control_.name(peer); };
  return comma_separated(peers, name);
}

std::string Exchange::described() const { return describe(whole_ != nullptr ? *whole_ : *call_); }

std::chrono::microseconds Exchange::sending_time(int peer) const {
  return net::sending_time(connections_[static_cast<size_t>(peer)]->fd());
}

void Exchange::flush() {
  const auto until = Clock::now() + std::min(kFlushTime, control_.patience().value_or(kFlushTime));
  for (const auto& connection : connections_) {
    if (connection == nullptr || !connection->is_open()) continue;
    int unsent = 0;
    while (ioctl(connection->fd(), SIOCOUTQ, &unsent) == 0 && unsent > 0 && Clock::now() < until &&
           net::connection_error(connection->fd()) == 0)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

}  // namespace cohort::tcp
