// One task of a cluster, whoever launched it: finds out from its environment who the others are,
// connects to each that has an address, checks that the right one answers there, and prints one
// line of JSON.

#include <chrono>
#include <cstdint>
#include <iostream>
#include <map>
#include <memory>
#include <netdb.h>
#include <poll.h>
#include <string>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "core/base/flags.h"
#include "core/base/program.h"
#include "strategies/cluster/resolve_cluster.h"

namespace {

using cohort::Address;
using cohort::Code;
using Clock = std::chrono::steady_clock;

class Socket {
 public:
  explicit Socket(int descriptor) : descriptor_(descriptor) {}
  ~Socket() {
    if (descriptor_ >= 0) close(descriptor_);
  }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;

  int descriptor() const { return descriptor_; }
  bool valid() const { return descriptor_ >= 0; }

 private:
  int descriptor_;
};

std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> look_up(const Address& address) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int status =
      getaddrinfo(address.host().c_str(), std::to_string(address.port()).c_str(), &hints, &found);
  if (status != 0) cohort::fail(Code::kUnavailable, address.text(), ": ", gai_strerror(status));
  return {found, freeaddrinfo};
}

void await_readable(const Socket& socket, Clock::time_point deadline, const std::string& what) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
  pollfd waiting{.fd = socket.descriptor(), .events = POLLIN, .revents = 0};
  if (left <= 0 || poll(&waiting, 1, static_cast<int>(left)) <= 0) {
    cohort::fail(Code::kDeadlineExceeded, "waited in vain for ", what);
  }
}

// Tells its rank to each that comes.
class Desk {
 public:
  Desk(const Address& address, int rank) : rank_(rank), socket_(open_socket(address)) {}

  void answer(int visitors, Clock::time_point deadline) const {
    for (int i = 0; i < visitors; ++i) {
      await_readable(socket_, deadline, cohort::str(visitors - i, " tasks that have yet to call"));
      const Socket visitor(accept(socket_.descriptor(), nullptr, nullptr));
      if (send(visitor.descriptor(), &rank_, sizeof rank_, MSG_NOSIGNAL) != sizeof rank_) --i;
    }
  }

 private:
  static int open_socket(const Address& address) {
    const auto info = look_up(address);
    const int descriptor = socket(info->ai_family, info->ai_socktype | SOCK_CLOEXEC, 0);
    const int reuse = 1;
    setsockopt(descriptor, SOL_SOCKET, SO_REUSEADDR, &reuse, sizeof reuse);
    if (bind(descriptor, info->ai_addr, info->ai_addrlen) != 0 ||
        listen(descriptor, SOMAXCONN) != 0) {
      cohort::fail(Code::kUnavailable, "cannot listen at ", address.text(), ": error ", errno);
    }
    return descriptor;
  }

  int32_t rank_;
  Socket socket_;
};

// The rank of the task that listens at `address`, which may not do so yet.
int ask(const Address& address, Clock::time_point deadline) {
  const auto info = look_up(address);
  while (Clock::now() < deadline) {
    const Socket socket(::socket(info->ai_family, info->ai_socktype | SOCK_CLOEXEC, 0));
    int32_t rank = -1;
    if (socket.valid() && connect(socket.descriptor(), info->ai_addr, info->ai_addrlen) == 0) {
      await_readable(socket, deadline, cohort::str("an answer of ", address.text()));
      if (recv(socket.descriptor(), &rank, sizeof rank, MSG_WAITALL) == sizeof rank) return rank;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(10));  // not there yet
  }
  cohort::fail(Code::kDeadlineExceeded, "nobody listens at ", address.text());
}

// Where tasks listen, by rank: all, or where only the leader's address is known, that one.
std::map<int, Address> addresses(const cohort::ClusterResolver& resolver) {
  std::map<int, Address> all;
  const auto& spec = resolver.cluster_spec();
  if (spec.empty() && resolver.leader()) all.emplace(0, *resolver.leader());
  if (spec.empty()) return all;
  for (const int id : spec.task_ids("worker")) all.emplace(id, spec.address("worker", id));
  return all;
}

void call_all(const std::map<int, Address>& tasks, const cohort::World& world,
              Clock::time_point deadline) {
  const auto own = tasks.find(world.rank);
  std::thread answering;
  std::exception_ptr error;
  if (own != tasks.end()) {
    const auto desk = std::make_shared<Desk>(own->second, world.rank);
    answering = std::thread([&error, desk, &world, deadline] {
      try {
        desk->answer(world.size - 1, deadline);
      } catch (...) {
        error = std::current_exception();
      }
    });
  }
  try {
    for (const auto& [rank, address] : tasks) {
      if (rank == world.rank) continue;
      const int answer = ask(address, deadline);
      if (answer != rank) {
        cohort::fail(Code::kInternal, address.text(), " is rank ", answer, ", expected ", rank);
      }
    }
  } catch (...) {
    if (answering.joinable()) answering.join();
    throw;
  }
  if (answering.joinable()) answering.join();
  if (error) std::rethrow_exception(error);
}

}  // namespace

int main(int argc, char** argv) {
  return cohort::run_main([&] {
    cohort::Flags flags(argc, argv, "Calls every task of the cluster.");
    const auto timeout = std::chrono::seconds(
        flags.integer("timeout", 20, "seconds for all", {.min = 1, .max = 3600}));
    flags.finish();
    const auto cluster = cohort::resolve_cluster();
    const cohort::World world = cluster.resolver->world();
    const auto tasks = addresses(*cluster.resolver);
    call_all(tasks, world, Clock::now() + timeout);

    char host[256] = "";
    gethostname(host, sizeof host - 1);
    nlohmann::json line = {{"launcher", cluster.resolver->launcher()},
                           {"rank", world.rank},
                           {"size", world.size},
                           {"host", host},
                           {"addresses", nlohmann::json::array()}};
    for (const auto& [rank, address] : tasks) line["addresses"].push_back(address.text());
    if (world.local_rank) line["local_rank"] = *world.local_rank;
    if (world.local_size) line["local_size"] = *world.local_size;
    if (const auto leader = cluster.resolver->leader()) line["leader"] = leader->text();
    std::cout << line.dump() + "\n" << std::flush;  // one write: lines of tasks do not mix
  });
}
