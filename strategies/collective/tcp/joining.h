#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "strategies/cluster/coordination/key_value_store.h"
#include "strategies/cluster/coordination/security.h"
#include "strategies/cluster/net/descriptor.h"
#include "strategies/cluster/net/internet_address.h"
#include "strategies/collective/tcp/frame.h"
#include "strategies/collective/tcp/tcp_communicator.h"

namespace cohort::tcp {

// What a group is made of.
struct Members {
  int rank;
  std::vector<net::InternetAddress> endpoints;  // by rank
  Token token;
  std::vector<std::string> hosts = {};  // that certificates may name, by rank; empty for plain text
  std::vector<int> numbers = {};        // what errors call the ranks; empty for their ranks
};

// The one of a new group.
Token random_token();

// kInvalidArgument for an address by which no other rank reaches the one whose it is, and as
// Security::check() where plain text would go there. `whose`: "the address of rank 1".
void check_address(const net::InternetAddress& endpoint, const coordination::Security& security,
                   const std::string& whose);

// How a rank finds the others of a new group in the store. All that the ranks say there they forget
// again, but for that the group has formed.
class Joining {
 public:
  // What is given is kept by reference. Others are waited for until `deadline`.
  Joining(KeyValueStore& store, int rank, int size, const TcpOptions& options,
          const coordination::Security& security, Clock::time_point deadline);

  // Tells the others where this rank listens. kAlreadyExists where it has joined the group before.
  void announce(const net::Descriptor& listener) const;
  // All who have announced themselves, once they all have. kDeadlineExceeded names those who have
  // not; kFailedPrecondition where for rank 0 the group has another size, or talks in another way;
  // as check_address() for their addresses.
  Members members() const;
  // To be called when this rank is connected with all others: they have found all that they look
  // for. Says that the group has formed before it forgets that this rank has joined.
  void forget() const;

 private:
  std::string address_key(int rank) const;
  std::string host_key(int rank) const;
  // How this rank talks: by TLS or in plain text.
  std::string_view mode() const;
  std::chrono::milliseconds left() const;
  void check_joins_once() const;
  bool has_formed() const;
  // None where nobody sets it within this time.
  std::optional<std::string> value_of(const std::string& key, std::chrono::milliseconds time) const;
  // The group's, out of what rank 0 says, which has to mean the same group.
  Token agreed_token(const std::string& said) const;
  [[noreturn]] void miss(const std::vector<int>& missing) const;

  KeyValueStore& store_;
  const int rank_, size_;
  const TcpOptions& options_;
  const coordination::Security& security_;
  const Clock::time_point deadline_;
  const std::string prefix_, token_key_, joined_key_;
};

}  // namespace cohort::tcp
