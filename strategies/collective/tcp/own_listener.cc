#include "strategies/collective/tcp/own_listener.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <string>
#include <thread>

#include "core/base/error.h"
#include "core/base/notice.h"
#include "core/base/program.h"
#include "strategies/cluster/coordination/limits.h"
#include "strategies/cluster/net/socket.h"
#include "strategies/collective/tcp/joining.h"

namespace cohort::tcp {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr seconds kBetweenLines(5);
constexpr milliseconds kPause(500);
// How often a rank that waits looks whether there is still something to wait for.
constexpr milliseconds kLookInterval(50);

class OwnAddress {
 public:
  OwnAddress(const KeyValueStore& store, int rank, const TcpOptions& options,
             const coordination::Security& security, Clock::time_point deadline)
      : store_(store),
        rank_(rank),
        options_(options),
        security_(security),
        give_up_(deadline - options.join_timeout / 10) {}

  OwnListener listen() {
    for (;;) {
      if (auto listener = try_to_listen()) return std::move(*listener);
      if (Clock::now() >= give_up_)
        fail(Code::kFailedPrecondition, name(), " has waited for ",
             coordination::in_words(waited<milliseconds>()), " for its own address: ", trouble_);
      pause();
    }
  }

 private:
  // None where it may be otherwise later.
  std::optional<OwnListener> try_to_listen() {
    const auto address = find();
    if (!address) return std::nullopt;
    check_address(*address, security_, "the address of this rank");
    try {
      return OwnListener{*address, net::listen_on(*address, options_.address_as_written)};
    } catch (const Error& error) {
      const bool is_name = address->text() != options_.address;
      if (!is_name || error.code() != Code::kFailedPrecondition) throw;
      trouble_ = error.message();
      return std::nullopt;
    }
  }

  std::optional<net::InternetAddress> find() {
    const std::string& written = options_.address_as_written;
    try {
      return net::InternetAddress::parse(options_.address,
                                         written.empty() ? "TcpOptions::address" : written);
    } catch (const Error& error) {
      if (error.code() != Code::kUnavailable) throw;
      trouble_ = error.message();
      return std::nullopt;
    }
  }

  void pause() {
    const auto end = std::min(Clock::now() + kPause, give_up_);
    while (Clock::now() < end) {
      store_.check();
      if (interrupted())
        fail(Code::kCancelled, "interrupted while it waited for its own address: ", trouble_);
      tell();
      std::this_thread::sleep_for(kLookInterval);
    }
  }

  void tell() {
    if (Clock::now() < next_line_ || !is_first_of_task()) return;
    next_line_ += kBetweenLines;
    print_notice(str("cohort: ", name(), ": waiting for its own address since ",
                     waited<seconds>().count(), " s: ", trouble_, '\n'));
  }

  // The others have the same address to wait for.
  bool is_first_of_task() const {
    if (rank_ == 0 || options_.tasks.empty()) return true;
    const auto rank = static_cast<size_t>(rank_);
    return options_.tasks[rank - 1] != options_.tasks[rank];
  }

  std::string name() const {
    return options_.tasks.empty() ? str("rank ", rank_)
                                  : options_.tasks[static_cast<size_t>(rank_)];
  }
  template <typename Unit>
  Unit waited() const {
    return std::chrono::duration_cast<Unit>(Clock::now() - began_);
  }

  const KeyValueStore& store_;
  const int rank_;
  const TcpOptions& options_;
  const coordination::Security& security_;
  const Clock::time_point began_ = Clock::now(), give_up_;
  Clock::time_point next_line_ = began_ + kBetweenLines;
  std::string trouble_;  // why it does not listen yet
};

}  // namespace

OwnListener listen_for_others(const KeyValueStore& store, int rank, const TcpOptions& options,
                              const coordination::Security& security, Clock::time_point deadline) {
  return OwnAddress(store, rank, options, security, deadline).listen();
}

}  // namespace cohort::tcp
