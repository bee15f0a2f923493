#include "strategies/cluster/address.h"

#include <algorithm>
#include <arpa/inet.h>
#include <array>
#include <net/if.h>

#include "core/base/error.h"
#include "strategies/cluster/parsing.h"

namespace cohort {
namespace {

using config::refuse;

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

bool is_name_part(std::string_view part) {
  return !part.empty() && part.size() <= 63 && part.front() != '-' && part.back() != '-' &&
         std::all_of(part.begin(), part.end(),
                     [](char c) { return is_digit(c) || is_letter(c) || c == '-' || c == '_'; });
}

// A name as DNS knows it, with the underscores that containers add, and perhaps a dot at the end.
bool is_name(std::string_view host) {
  if (host.ends_with('.')) host.remove_suffix(1);
  if (host.empty() || host.size() > 253) return false;
  for (size_t begin = 0; begin <= host.size();) {
    const size_t end = std::min(host.find('.', begin), host.size());
    const std::string_view part = host.substr(begin, end - begin);
    if (!is_name_part(part)) return false;
    // A name that ends in a number would be taken for an IPv4 address by some resolvers.
    if (end == host.size() && begin > 0 && std::all_of(part.begin(), part.end(), is_digit)) {
      return false;
    }
    begin = end + 1;
  }
  return true;
}

// The name of a network interface, as in "enP2p1s0" or "bond0.100"; case matters.
bool is_zone(std::string_view zone) {
  return !zone.empty() && zone.size() < IF_NAMESIZE &&
         std::all_of(zone.begin(), zone.end(), [](char c) {
           return is_digit(c) || is_letter(c) || c == '-' || c == '_' || c == '.';
         });
}

// The shortest form of an IPv6 address, with its zone if it has one, or "". One that stands for an
// IPv4 address becomes that: sockets of IPv6 alone cannot have it.
std::string canonical_ipv6(std::string_view text) {
  const size_t percent = std::min(text.find('%'), text.size());
  const std::string_view zone = text.substr(percent);
  if (!zone.empty() && !is_zone(zone.substr(1))) return "";
  std::array<char, INET6_ADDRSTRLEN> shortest{};
  in6_addr bytes{};
  if (inet_pton(AF_INET6, std::string(text.substr(0, percent)).c_str(), &bytes) != 1) return "";
  if (IN6_IS_ADDR_V4MAPPED(&bytes)) {
    inet_ntop(AF_INET, &bytes.s6_addr[12], shortest.data(), shortest.size());
    return zone.empty() ? shortest.data() : "";
  }
  inet_ntop(AF_INET6, &bytes, shortest.data(), shortest.size());
  return str(shortest.data(), zone);
}

// Whether hosts of several links may have it.
bool lacks_zone(const std::string& canonical) {
  in6_addr bytes{};
  return inet_pton(AF_INET6, canonical.c_str(), &bytes) == 1 && IN6_IS_ADDR_LINKLOCAL(&bytes);
}

bool is_ipv4(std::string_view text) {
  in_addr bytes{};
  return inet_pton(AF_INET, std::string(text).c_str(), &bytes) == 1;
}

// Why no task can be reached there, or "": the system's resolver also knows 0.0.0.0 as "0" or
// "0x0".
std::string_view why_unreachable(const std::string& canonical) {
  constexpr std::string_view kEvery = "on which a task can listen but not be reached";
  constexpr std::string_view kMany = "an address for multicast or broadcast";
  in_addr ipv4{};
  if (inet_aton(canonical.c_str(), &ipv4) != 0) {
    const in_addr_t bits = ntohl(ipv4.s_addr);
    if (bits == INADDR_ANY) return kEvery;
    return IN_MULTICAST(bits) || bits == INADDR_BROADCAST ? kMany : "";
  }
  in6_addr ipv6{};
  if (inet_pton(AF_INET6, canonical.substr(0, canonical.find('%')).c_str(), &ipv6) != 1) return "";
  if (IN6_IS_ADDR_UNSPECIFIED(&ipv6)) return kEvery;
  return IN6_IS_ADDR_MULTICAST(&ipv6) ? kMany : "";
}

// How a host is written: with its port, or alone.
struct Form {
  std::string_view addresses, example;
};
constexpr Form kWithPort{"an IPv4 address, or an IPv6 address in brackets",
                         "\"worker0.example.com:2222\" or \"[2001:db8::1]:2222\""};
constexpr Form kAlone{"an IPv4 address, or an IPv6 address, without a port",
                      "\"worker0.example.com\", \"10.0.0.1\" or \"2001:db8::1\""};

// What there is to say of a host that is neither a name nor an address, after `whole`.
std::string fault_of(std::string_view host, std::string_view whole) {
  const bool is_alone = host == whole;
  const size_t colon = host.find(':');
  if (colon == std::string_view::npos) return is_alone ? "" : str(", whose host is ", quote(host));
  if (!is_alone) return ", whose host is no IPv6 address";
  const std::string_view port = host.substr(colon + 1);
  const bool has_port = colon > 0 && !port.empty() && std::ranges::all_of(port, is_digit);
  return has_port ? ", which has a port" : ", which is no IPv6 address";
}

std::string lower_case(std::string_view host) {
  std::string lower(host);
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](unsigned char c) { return c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c; });
  return lower;
}

std::string canonical_host(std::string_view host, std::string_view whole, const Form& form,
                           std::string_view place) {
  std::string canonical;
  if (host.find(':') != std::string_view::npos) {
    canonical = canonical_ipv6(host);
  } else if (is_ipv4(host) || is_name(host)) {
    canonical = lower_case(host);
  }
  if (canonical.empty()) {
    refuse(place, str(quote(whole), fault_of(host, whole)),
           str("a host name of letters, digits, '-', '_' and '.', ", form.addresses), form.example);
  }
  if (lacks_zone(canonical)) {
    refuse(place, str(quote(whole), ", a link-local address without a zone"),
           "the interface behind it, as in fe80::1%eth0, or another address", form.example);
  }
  if (const std::string_view reason = why_unreachable(canonical); !reason.empty()) {
    refuse(place, str(quote(whole), ", ", reason),
           "the address under which the others reach this task", form.example);
  }
  return canonical;
}

}  // namespace

Address Address::parse(std::string_view text, std::string_view place) {
  const size_t colon = text.rfind(':');
  const size_t bracket = text.rfind(']');
  if (colon == std::string_view::npos || (bracket != std::string_view::npos && colon < bracket)) {
    refuse(place, str(quote(text), ", which has no port"), "host:port", kWithPort.example);
  }
  std::string_view host = text.substr(0, colon);
  if (host.starts_with('[') != host.ends_with(']')) {
    refuse(place, str(quote(text), ", with one bracket"), "host:port", kWithPort.example);
  }
  if (host.starts_with('[')) {
    host = host.substr(1, host.size() - 2);
    if (host.find(':') == std::string_view::npos) {
      refuse(place, str(quote(text), ", with brackets around what is no IPv6 address"), "host:port",
             kWithPort.example);
    }
  } else if (host.find(':') != std::string_view::npos) {
    refuse(place, str(quote(text), ", with several colons"),
           "host:port, and brackets around an IPv6 address", kWithPort.example);
  }
  const int64_t port =
      config::parse_integer(text.substr(colon + 1), str(place, ": port of ", quote(text)),
                            {.min = 1, .max = 65535}, kWithPort.example);
  return Address(canonical_host(host, text, kWithPort, place), static_cast<int>(port));
}

Address Address::of(std::string_view host, int64_t port, std::string_view place) {
  if (port < 1 || port > 65535) {
    refuse(place, str("port ", port), "a port from 1 to 65535", "29500");
  }
  std::string_view bare = host;
  if (bare.starts_with('[') && bare.ends_with(']')) bare = bare.substr(1, bare.size() - 2);
  return Address(canonical_host(bare, host, kAlone, place), static_cast<int>(port));
}

std::string Address::text() const {
  const bool ipv6 = host_.find(':') != std::string::npos;
  return ipv6 ? str("[", host_, "]:", port_) : str(host_, ":", port_);
}

}  // namespace cohort
