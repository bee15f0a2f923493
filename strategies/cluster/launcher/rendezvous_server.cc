#include "strategies/cluster/launcher/rendezvous_server.h"

#include <algorithm>
#include <cerrno>
#include <sys/socket.h>
#include <utility>

#include "core/base/quote.h"
#include "strategies/cluster/net/internet_address.h"

namespace cohort::launcher {
namespace {

constexpr std::chrono::seconds kLongestStep(2);
constexpr std::chrono::seconds kGreetingTime(5);  // for a connection to say who it is
constexpr std::chrono::seconds kLeavingTime(5);   // for a node to read its last message
constexpr size_t kMaxStrangers = 64;

}  // namespace

RendezvousServer::RendezvousServer(net::Descriptor listener, JobRules rules,
                                   std::chrono::milliseconds patience,
                                   coordination::Security security,
                                   std::function<void(const std::string&)> note)
    : listener_(std::move(listener)),
      patience_(patience),
      security_(std::move(security)),
      note_(std::move(note)),
      clock_(kLongestStep),
      state_(std::move(rules), clock_.now()) {}

void RendezvousServer::watch(std::vector<pollfd>& events) const {
  // What cannot be accepted would end every wait at once; the next step looks at it.
  if (!lacks_descriptors_) events.push_back({listener_.get(), POLLIN, 0});
  watch_peers(events);
}

void RendezvousServer::watch_peers(std::vector<pollfd>& events) const {
  for (const auto& [node, peer] : peers_) {
    events.push_back({peer.channel.link().fd(), peer.channel.events(), 0});
  }
}

void RendezvousServer::step() {
  const Time now = clock_.now();
  std::vector<pollfd> events = {{listener_.get(), POLLIN, 0}};
  watch_peers(events);
  lacks_descriptors_ = false;
  if (poll(events.data(), events.size(), 0) > 0) {
    size_t i = 1;
    for (auto& [node, peer] : peers_) {
      if (events[i++].revents) serve(node, peer, now);
    }
    if (events[0].revents) accept_some(now);
  }
  state_.tick(now);
  drop_faulty(now);
  send_all(now);
}

void RendezvousServer::accept_some(Time now) {
  const auto is_stranger = [&](const auto& entry) { return !state_.knows(entry.first); };
  auto strangers = static_cast<size_t>(std::count_if(peers_.begin(), peers_.end(), is_stranger));
  for (;;) {
    net::Descriptor socket(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    lacks_descriptors_ = !socket && errno != EAGAIN;
    if (!socket) return;
    if (strangers >= kMaxStrangers) continue;
    ++strangers;
    const auto address = net::InternetAddress::of_peer(socket);
    net::Stream link = security_.connect(std::move(socket), net::Stream::End::kCalled);
    peers_.emplace(next_node_++, Peer{Channel(std::move(link), patience_),
                                      address ? address->host() : "", now, now, now});
  }
}

void RendezvousServer::serve(int node, Peer& peer, Time now) {
  peer.channel.move();
  while (!peer.is_leaving && !peer.is_intruder) {
    const auto message = peer.channel.receive();
    if (!message) return;
    peer.heard = now;
    take(node, peer, *message, now);
  }
}

void RendezvousServer::admit(int node, Peer& peer, const Join& join, Time now) {
  try {
    const coordination::CertifiedTasks tasks = security_.tasks_of(peer.channel.link());
    if (!join.node.workers.empty()) tasks.check_type("worker");
    if (!join.node.ps.empty()) tasks.check_type("ps");
  } catch (const Error& error) {
    peer.channel.send(Refused{static_cast<int>(error.code()), error.message()});
    peer.is_leaving = true;
    peer.heard = now;
    note_refusal(peer, error, now);
    return;
  }
  state_.join(node, join, now);
}

void RendezvousServer::take(int node, Peer& peer, const Message& message, Time now) {
  if (const auto* join = std::get_if<Join>(&message)) {
    if (!state_.knows(node)) admit(node, peer, *join, now);
  } else if (!state_.knows(node)) {
    peer.is_intruder = true;
  } else if (const auto* leave = std::get_if<Leave>(&message)) {
    state_.lose(node, leave->reason, leave->code, now);
    peer.is_leaving = true;
  } else {
    state_.receive(node, message, now);
  }
  send_all(now);
}

std::string RendezvousServer::fault(int node, const Peer& peer, Time now) const {
  if (!peer.channel.end().empty()) return peer.channel.end();
  if (peer.is_intruder) return "it does not say who it is";
  if (peer.is_leaving) return now - peer.heard > kLeavingTime ? "it does not leave" : "";
  if (!state_.knows(node)) return now - peer.since > kGreetingTime ? "it says nothing" : "";
  if (now - peer.heard <= patience_) return "";
  return str("silent for ", std::chrono::duration<double>(patience_).count(), " s");
}

void RendezvousServer::drop_faulty(Time now) {
  for (auto entry = peers_.begin(); entry != peers_.end();) {
    const std::string why = fault(entry->first, entry->second, now);
    if (why.empty()) {
      ++entry;
    } else {
      const Code code = entry->second.channel.end_code();
      if (code != Code::kUnavailable && !state_.knows(entry->first))
        note_refusal(entry->second, Error(code, why), now);
      state_.lose(entry->first, why, exit_code(Code::kUnavailable), now);
      entry = peers_.erase(entry);
    }
  }
}

void RendezvousServer::note_refusal(const Peer& peer, const Error& error, Time now) {
  if (const auto line = refusals_.line(peer.host, error, now)) note_(printable(*line));
}

void RendezvousServer::send_all(Time now) {
  for (const auto& [node, message] : state_.take_sends()) {
    const auto found = peers_.find(node);
    if (found == peers_.end()) continue;
    Peer& peer = found->second;
    peer.channel.send(message);
    peer.told = now;
    if (const auto* refused = std::get_if<Refused>(&message))
      note_refusal(peer, Error(code_of(refused->code), refused->reason), now);
    if (std::holds_alternative<Refused>(message) || std::holds_alternative<Finish>(message)) {
      peer.is_leaving = true;
      peer.heard = now;
    }
  }
  for (auto& [node, peer] : peers_) {
    if (now - peer.told < ping_interval(patience_) || !state_.knows(node)) continue;
    peer.channel.send(Ping{});
    peer.told = now;
  }
}

void RendezvousServer::finish(int code, const std::vector<std::string>& lines) {
  state_.finish(code, lines);
  send_all(clock_.now());
}

bool RendezvousServer::is_done() const { return state_.is_over() && peers_.empty(); }

}  // namespace cohort::launcher
