#include "strategies/cluster/coordination/own_host.h"

#include <chrono>
#include <poll.h>
#include <string>
#include <string_view>

#include "strategies/cluster/coordination/endpoint.h"
#include "strategies/cluster/net/socket.h"

namespace cohort {
namespace {

using Clock = std::chrono::steady_clock;

// For each address of the leader, which has just been reached at one of them.
constexpr std::chrono::seconds kConnectingTime(5);
constexpr int kLookInterval = 50;  // milliseconds

enum class Place { kThisHost, kElsewhere, kUnknown };

Place place_of(const Address& address) {
  try {
    const auto found = coordination::resolve(address);
    return coordination::all_loopback(found) ? Place::kThisHost : Place::kElsewhere;
  } catch (const Error&) {
    return Place::kUnknown;  // a name that may be known later
  }
}

// Nothing where the cluster does not say.
std::optional<Address> own_address(const ClusterResolver& resolver) {
  const ClusterSpec& spec = resolver.cluster_spec();
  if (resolver.task_id() && spec.has_task(resolver.task_type(), *resolver.task_id()))
    return spec.address(resolver.task_type(), *resolver.task_id());
  return resolver.world().rank == 0 ? resolver.leader() : std::nullopt;
}

// Who is on another host, in words; "" when there is none, or none is known.
std::string who_is_elsewhere(const ClusterResolver& resolver) {
  const ClusterSpec& spec = resolver.cluster_spec();
  for (const std::string& job : spec.jobs())
    for (const int task : spec.task_ids(job))
      if (const Address& address = spec.address(job, task); place_of(address) == Place::kElsewhere)
        return str(job, ":", task, " at ", address.text());
  return resolver.several_hosts() ? "the ranks of other hosts" : "";
}

// What helps where /etc/hosts has to stay as it is.
std::string other_remedy(const ClusterResolver& resolver) {
  if (!resolver.several_hosts()) return "name tasks by their addresses";
  if (resolver.launcher() == "torchrun")
    return "have it in MASTER_ADDR, as by torchrun --local-addr (or 127.0.0.1 where all ranks are "
           "on this host)";
  return "set MASTER_ADDR to it, and MASTER_PORT, for all tasks";
}

// "127.0.0.1:2222 (TF_CONFIG.cluster.worker[0])".
std::string with_source(const Address& address, const ClusterResolver& resolver) {
  for (const Fact& fact : resolver.facts())
    if (fact.value == address.text()) return str(fact.value, " (", fact.source, ")");
  return address.text();
}

// Where the address itself is a loopback address, no name is to blame.
[[noreturn]] void refuse_address(const Address& own, const ClusterResolver& resolver,
                                 const std::string& other) {
  const std::string_view right = " the address at which others reach this host";
  fail(Code::kFailedPrecondition, "this task is at ", with_source(own, resolver), ", where ", other,
       " cannot reach it: ",
       resolver.several_hosts() ? str("take", right, ", and ", other_remedy(resolver))
                                : str("write", right, " there"));
}

}  // namespace

void check_own_name(const ClusterResolver& resolver) {
  if (resolver.world().size == 1) return;
  const auto own = own_address(resolver);
  if (!own || place_of(*own) != Place::kThisHost) return;
  const std::string other = who_is_elsewhere(resolver);
  if (other.empty()) return;
  const std::string& host = own->host();
  const std::string found = coordination::resolve(*own)[0].host();
  if (host == found || host == "localhost") refuse_address(*own, resolver, other);
  fail(Code::kFailedPrecondition, "this task is at ", host, ", which stands for ", found,
       " on this host, where ", other,
       " cannot reach it: in /etc/hosts, write the address that this host has "
       "in its network instead of ",
       found, ", as in \"10.0.0.1 ", host, "\", or ", other_remedy(resolver));
}

std::string own_host(const ClusterResolver& resolver,
                     const std::function<std::optional<Error>()>& failure) {
  if (const auto own = own_address(resolver)) return own->host();
  const auto leader = resolver.leader();
  if (!leader) return "127.0.0.1";
  for (const auto& address : net::InternetAddress::resolve(leader->host(), leader->port())) {
    net::Descriptor socket;
    try {
      socket = net::start_connecting(address);
    } catch (const Error&) {
      continue;  // no way there
    }
    const auto deadline = Clock::now() + kConnectingTime;
    pollfd connecting{socket.get(), POLLOUT, 0};
    while (poll(&connecting, 1, kLookInterval) != 1 && Clock::now() < deadline) {
      if (const auto error = failure()) throw *error;
    }
    if (connecting.revents && net::connection_error(socket.get()) == 0)
      return net::InternetAddress::of(socket).host();
  }
  if (const auto error = failure()) throw *error;
  fail(Code::kUnavailable, "cannot reach the leader at ", leader->text());
}

std::string own_address_as_written(const ClusterResolver& resolver) {
  const auto own = own_address(resolver);
  return own ? with_source(*own, resolver) : "";
}

}  // namespace cohort
