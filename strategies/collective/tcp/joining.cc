#include "strategies/collective/tcp/joining.h"

#include <algorithm>
#include <random>
#include <sstream>

#include "core/base/comma_separated.h"
#include "core/base/error.h"
#include "strategies/cluster/address.h"

namespace cohort::tcp {
namespace {

// What the token of a group begins with that has formed.
constexpr std::string_view kFormed = "formed";

// Of "host:port", without brackets.
std::string host_of(const std::string& address) {
  return Address::of(address.substr(0, address.rfind(':')), 1, "TcpOptions::address").host();
}

std::string token_text(const Token& token) { return str(token.high, ' ', token.low); }

Token token_of(const std::string& text) {
  std::istringstream in(text);
  Token token;
  in >> token.high >> token.low;
  if (!in) fail(Code::kDataLoss, "the store has no token of the group");
  return token;
}

}  // namespace

Token random_token() {
  std::random_device device;
  const auto word = [&] { return uint64_t{device()} << 32 | device(); };
  return {word(), word()};
}

void check_address(const net::InternetAddress& endpoint, const coordination::Security& security,
                   const std::string& whose) {
  if (endpoint.is_unspecified())
    invalid(whose, " is ", endpoint.text(),
            ", which is every network; name the address by which the other ranks reach this one");
  security.check(str("of collectives over ", whose, ", ", endpoint.text(), ","),
                 endpoint.is_loopback());
}

Joining::Joining(KeyValueStore& store, int rank, int size, const TcpOptions& options,
                 const coordination::Security& security, Clock::time_point deadline)
    : store_(store),
      rank_(rank),
      size_(size),
      options_(options),
      security_(security),
      deadline_(deadline),
      prefix_("tcp/" + options.name + "/"),
      token_key_(prefix_ + "token"),
      joined_key_(str(prefix_, rank, "/joined")) {}

void Joining::announce(const net::Descriptor& listener) const {
  check_joins_once();
  if (rank_ == 0) store_.set(token_key_, str(token_text(random_token()), ' ', mode(), ' ', size_));
  if (security_.encrypted()) store_.set(host_key(rank_), host_of(options_.address));
  store_.set(address_key(rank_), net::InternetAddress::of(listener).text());
}

Members Joining::members() const {
  Members members{.rank = rank_, .endpoints = {}, .token = {}};
  const auto token = value_of(token_key_, left());
  if (token) members.token = agreed_token(*token);
  std::vector<int> missing;
  for (int r = 0; r < size_; ++r) {
    const auto address = value_of(address_key(r), left());
    const auto host = security_.encrypted() ? value_of(host_key(r), left()) : std::string();
    if (!address || !host || (r == 0 && !token)) {
      missing.push_back(r);
      continue;
    }
    const std::string whose = str("the address of rank ", r);
    members.endpoints.push_back(net::InternetAddress::parse(*address, whose));
    if (security_.encrypted()) members.hosts.push_back(*host);
    check_address(members.endpoints.back(), security_, whose);
  }
  if (!missing.empty()) miss(missing);
  return members;
}

void Joining::forget() const {
  store_.set(token_key_, str(kFormed, ' ', mode(), ' ', size_));
  store_.erase(joined_key_);
  store_.erase(address_key(rank_));
  if (security_.encrypted()) store_.erase(host_key(rank_));
}

std::string Joining::address_key(int rank) const { return str(prefix_, rank); }
std::string Joining::host_key(int rank) const { return str(prefix_, rank, "/host"); }
std::string_view Joining::mode() const { return security_.encrypted() ? "TLS" : "plain"; }

std::chrono::milliseconds Joining::left() const {
  return std::max(std::chrono::milliseconds(0),
                  std::chrono::ceil<std::chrono::milliseconds>(deadline_ - Clock::now()));
}

void Joining::check_joins_once() const {
  if (store_.add(joined_key_, 1) > 1)
    fail(Code::kAlreadyExists, "there is a rank ", rank_, " in the group \"", options_.name,
         "\" already; every rank joins once");
  if (!has_formed()) return;
  store_.erase(joined_key_);
  fail(Code::kAlreadyExists, "the group \"", options_.name,
       "\" has formed already; every rank joins once");
}

bool Joining::has_formed() const {
  const auto token = value_of(token_key_, std::chrono::milliseconds(0));
  return token && token->starts_with(kFormed);
}

std::optional<std::string> Joining::value_of(const std::string& key,
                                             std::chrono::milliseconds time) const {
  try {
    return store_.get(key, time);
  } catch (const Error& error) {
    if (error.code() != Code::kDeadlineExceeded) throw;
    return std::nullopt;
  }
}

Token Joining::agreed_token(const std::string& said) const {
  const std::string of_rank_0 = said.substr(said.rfind(' ') + 1);
  if (of_rank_0 != std::to_string(size_))
    fail(Code::kFailedPrecondition, "rank ", rank_, " joins the group \"", options_.name, "\" of ",
         size_, " ranks, but for rank 0 it has ", of_rank_0);
  if (said.find(mode()) == std::string::npos)
    fail(Code::kFailedPrecondition, "rank ", rank_, " has ",
         security_.encrypted() ? "certificates and rank 0 has none"
                               : "no certificates (COHORT_TLS_CERT), but rank 0 has",
         ": all ranks of the group \"", options_.name, "\" must talk by TLS, or none");
  return token_of(said);
}

void Joining::miss(const std::vector<int>& missing) const {
  const auto name = [this](int r) {
    return options_.tasks.empty() ? str("rank ", r)
                                  : str(options_.tasks[static_cast<size_t>(r)], " (rank ", r, ')');
  };
  throw Error(Code::kDeadlineExceeded,
              str(name(rank_), " has waited for ",
                  static_cast<double>(options_.join_timeout.count()) / 1000, " s for ",
                  comma_separated(missing, name), " of ", size_, " to join the group \"",
                  options_.name, '"'),
              options_.tasks.empty() ? "" : options_.tasks[static_cast<size_t>(missing[0])]);
}

}  // namespace cohort::tcp
