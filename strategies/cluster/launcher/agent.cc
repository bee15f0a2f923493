#include "strategies/cluster/launcher/agent.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <sys/socket.h>

#include "core/base/error.h"
#include "core/base/quote.h"
#include "strategies/cluster/coordination/endpoint.h"
#include "strategies/cluster/coordination/job_id.h"
#include "strategies/cluster/launcher/system_error.h"
#include "strategies/cluster/net/port_holder.h"

namespace cohort::launcher {
namespace {

constexpr std::chrono::seconds kLongestStep(2);
constexpr std::chrono::milliseconds kTryInterval(300);
// How long one attempt may take in any case, also where the time to join is nearly over.
constexpr std::chrono::seconds kShortestAttempt(1);
constexpr int kBacklog = 1024;

std::chrono::steady_clock::duration ticks(NodeOptions::Seconds seconds) {
  return std::chrono::duration_cast<std::chrono::steady_clock::duration>(seconds);
}

// What a node's attempt does, of which it prints why, fit for a terminal.
Message printable_order(Message order) {
  if (auto* settle = std::get_if<Settle>(&order)) settle->reason = printable(settle->reason);
  if (auto* end = std::get_if<End>(&order)) end->reason = printable(end->reason);
  if (auto* signal = std::get_if<Signal>(&order)) signal->origin = printable(signal->origin);
  return order;
}

// Whether a name by which hosts know each other is, here, an address that no other host reaches.
bool is_hidden(const std::string& name, const net::InternetAddress& address) {
  return address.is_loopback() && name != "localhost" && name != address.host();
}

std::string file_name(const std::string& path) { return path.substr(path.rfind('/') + 1); }

}  // namespace

Agent::Agent(const Options& options, std::function<void(const std::string&)> note)
    : options_(options),
      note_(std::move(note)),
      security_({}, options.nodes->allow_plaintext, process_environment, "--allow_plaintext"),
      given_id_(coordination::given_job_id(process_environment)),
      clock_(kLongestStep) {
  const Time now = clock_.now();
  give_up_ = now + ticks(nodes().join_timeout);
  next_try_ = now;
  reports_.begin(now);
}

std::string Agent::place() const { return "the rendezvous at " + nodes().rendezvous.text(); }

std::chrono::milliseconds Agent::patience() const {
  return std::chrono::ceil<std::chrono::milliseconds>(nodes().node_timeout);
}

void Agent::watch(std::vector<pollfd>& events) const {
  if (server_) server_->watch(events);
  if (connecting_) events.push_back({connecting_.get(), POLLOUT, 0});
  if (channel_) events.push_back({channel_->link().fd(), channel_->events(), 0});
}

void Agent::step() {
  const Time now = clock_.now();
  if (server_) server_->step();
  if (job_code_ || !loss_.empty()) return;
  if (channel_) {
    listen(now);
  } else if (connecting_) {
    finish_connecting(now);
  } else if (now >= next_try_) {
    seek(now);
  }
}

// Finding the rendezvous.

std::vector<net::InternetAddress> Agent::find_rendezvous() const {
  auto addresses = coordination::resolve(nodes().rendezvous);
  security_.check("between nodes and " + place(), coordination::all_loopback(addresses));
  return addresses;
}

void Agent::serve_if_here(const std::vector<net::InternetAddress>& addresses) {
  if (!may_serve() || server_) return;
  int error = 0;
  for (const net::InternetAddress& address : addresses) {
    net::Descriptor listener = address.try_socket(SOCK_NONBLOCK);
    const int on = 1;
    if (listener) setsockopt(listener.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (listener && address.bind(listener) == 0 && ::listen(listener.get(), kBacklog) == 0) {
      server_.emplace(std::move(listener), rules(), patience(), security_, note_);
      if (const std::string& name = nodes().rendezvous.host(); is_hidden(name, address)) {
        note_(str("warning: ", name, " stands for ", address.host(),
                  " on this host, where nodes on other hosts cannot reach it: in /etc/hosts, write "
                  "the address that this host has in its network instead, or name that in "
                  "--rendezvous"));
      }
      return;
    }
    if (error != EADDRINUSE) error = errno;  // says more than what another address of the host had
  }
  // Without --node_rank, whoever cannot serve is not the one.
  if (nodes().rank == 0) fail_to_serve(error);
}

void Agent::fail_to_serve(int error) const {
  const std::string what = "node 0 cannot serve " + place();
  const Address& address = nodes().rendezvous;
  if (error == EADDRINUSE)
    fail(Code::kFailedPrecondition, what, ": ", net::port_in_use(address.port()));
  if (error == EADDRNOTAVAIL)
    fail(Code::kFailedPrecondition, what, ": ", address.host(),
         " is no address of this host; start node 0 where it is, or give this one another "
         "--node_rank");
  fail_system_with(error, what);
}

void Agent::seek(Time now) {
  std::vector<net::InternetAddress> addresses;
  try {
    addresses = find_rendezvous();
  } catch (const Error& error) {
    if (error.code() != Code::kUnavailable) throw;
    try_again(error.message(), now);  // names may be known later than hosts
    return;
  }
  serve_if_here(addresses);
  const net::InternetAddress& address = addresses[tries_++ % addresses.size()];
  connecting_ = address.try_socket(SOCK_NONBLOCK);
  if (!connecting_ || (address.connect(connecting_) != 0 && errno != EINPROGRESS)) {
    try_again(std::strerror(errno), now);
    return;
  }
  has_answered_ = false;
  next_try_ = std::min(now + patience(), std::max(give_up_, now + kShortestAttempt));
}

void Agent::try_again(const std::string& why, Time now) {
  connecting_.reset();
  channel_.reset();
  next_try_ = now + kTryInterval;
  const auto left = std::chrono::ceil<std::chrono::seconds>(give_up_ - now).count();
  if (left <= 0) {
    fail(Code::kDeadlineExceeded, "gave up waiting for ", place(), " after ",
         nodes().join_timeout.count(), " s: ", why);
  }
  if (!reports_.take(now) || options_.quiet) return;
  note_(str("waiting for ", place(), ": ", why, "; giving up in ", left, " s"));
}

void Agent::finish_connecting(Time now) {
  pollfd event{connecting_.get(), POLLOUT, 0};
  if (poll(&event, 1, 0) == 0) {
    if (now >= next_try_) try_again("no answer", now);
    return;
  }
  int error = 0;
  socklen_t size = sizeof(error);
  getsockopt(connecting_.get(), SOL_SOCKET, SO_ERROR, &error, &size);
  if (error != 0) {
    try_again(std::strerror(error), now);
    return;
  }
  heard_ = told_ = now;
  join();
}

void Agent::join() {
  const net::InternetAddress here = find_host();
  if (!ports_) reserve_ports(here);
  Node node = ports_->describe(nodes().host.empty() ? here.host() : nodes().host);
  node.rank = server_ ? 0 : nodes().rank;  // whoever serves is the first, also without --node_rank
  channel_.emplace(
      security_.connect(std::exchange(connecting_, {}), net::Stream::End::kCaller), patience(),
      [this](const net::Stream& link) { security_.check_name(link, nodes().rendezvous.host()); });
  channel_->send(Join{kProtocol, nodes().job_id, terms(), std::move(node)});
}

net::InternetAddress Agent::find_host() const {
  if (nodes().host.empty()) return net::InternetAddress::of(connecting_);
  try {
    return net::InternetAddress::resolve(nodes().host, 0)[0];
  } catch (const Error& unknown) {
    invalid("--host=", nodes().host, ": ", unknown.message());
  }
}

void Agent::reserve_ports(const net::InternetAddress& here) {
  try {
    ports_.emplace(options_, here);
  } catch (const Error& error) {
    if (nodes().host.empty()) throw;
    throw error.with_context("--host=" + nodes().host);
  }
}

std::vector<std::pair<std::string, std::string>> Agent::terms() const {
  const NodeOptions& own = nodes();
  const auto flag = [](bool value) { return value ? "true" : "false"; };
  const std::string fixed = str(own.max_nodes);
  return {{"--nnodes=", own.min_nodes < own.max_nodes ? str(own.min_nodes, ":", fixed) : fixed},
          {"the program ", file_name(options_.command[0])},
          {"--chief=", flag(options_.chief)},
          {"--evaluator=", flag(options_.evaluator)},
          {"--restarts=", str(options_.restarts)},
          {"--task_restarts=", str(options_.task_restarts)},
          {"--timeout=", str(options_.timeout.count())},
          {"COHORT_JOB_ID=", given_id_}};
}

JobRules Agent::rules() const {
  const NodeOptions& own = nodes();
  return {.min_nodes = static_cast<size_t>(own.min_nodes),
          .max_nodes = static_cast<size_t>(own.max_nodes),
          .restarts = options_.restarts,
          .node_failures = own.node_failures,
          .join_timeout = ticks(own.join_timeout),
          .last_call = ticks(own.last_call),
          .timeout = ticks(options_.timeout),
          .job_id = own.job_id,
          .run_id = given_id_,
          .terms = terms(),
          .place = place()};
}

// Talking to it.

void Agent::listen(Time now) {
  channel_->move();
  while (auto message = channel_->receive()) {
    heard_ = now;
    has_answered_ = true;
    take(std::move(*message));
    if (job_code_) return;
  }
  std::string end = printable(channel_->end());
  if (end.empty()) end = silence(now);
  if (!end.empty() && has_joined_) {
    lose(end);
  } else if (!end.empty()) {
    if (channel_->end_code() != Code::kUnavailable) fail(channel_->end_code(), place(), ": ", end);
    try_again(end, now);
  } else if (now - told_ >= ping_interval(patience())) {
    told_ = now;
    tell(Ping{});
  }
}

std::string Agent::silence(Time now) const {
  if (!has_answered_) return now >= next_try_ ? "it takes the connection and says nothing" : "";
  if (now - heard_ <= patience()) return "";
  return str("silent for ", nodes().node_timeout.count(), " s");
}

void Agent::take(Message message) {
  if (const auto* refused = std::get_if<Refused>(&message)) {
    throw Error(code_of(refused->code),
                str(place(), " refuses this node: ", printable(refused->reason)));
  }
  if (const auto* notice = std::get_if<Notice>(&message)) {
    has_joined_ = true;
    for (const auto& line : notice->lines) note_(printable(line));
  } else if (const auto* finish = std::get_if<Finish>(&message)) {
    job_code_ = finish->code;
    orders_.push_back(End{"the job is over"});
    channel_.reset();
  } else if (!std::holds_alternative<Ping>(message)) {
    orders_.push_back(printable_order(std::move(message)));
  }
}

void Agent::lose(const std::string& why) {
  // The rendezvous counts from the last word before that, which was a while ago.
  const auto stopped = clock_.last_step();
  const bool is_own_doing = stopped >= patience() - 2 * ping_interval(patience());
  loss_ = is_own_doing ? str("this node was stopped for ",
                             std::chrono::round<std::chrono::seconds>(stopped).count(),
                             " s, after which ", place(), " counts it as lost")
                       : str(place(), " is lost: ", why);
  channel_.reset();
  orders_.push_back(End{loss_});
}

std::optional<Message> Agent::next_order() {
  if (orders_.empty()) return std::nullopt;
  Message order = std::move(orders_.front());
  orders_.pop_front();
  return order;
}

void Agent::tell(const Message& message) {
  if (channel_) channel_->send(message);
}

void Agent::leave(int code, const std::string& reason) {
  tell(Leave{code, reason});
  if (server_)
    server_->finish(code, {"ending, because the node of the rendezvous left: " + reason});
  connecting_.reset();
  channel_.reset();
  job_code_ = code;
}

bool Agent::is_done() const { return !server_ || server_->is_done(); }

}  // namespace cohort::launcher
