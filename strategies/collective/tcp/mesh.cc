#include "strategies/collective/tcp/mesh.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <list>
#include <poll.h>

#include "core/base/error.h"
#include "strategies/cluster/net/socket.h"

namespace cohort::tcp {
namespace {

// Callers that have not said who they are: more push out the oldest ones.
constexpr size_t kMaxStrangers = 64;
constexpr std::chrono::seconds kTimeToIntroduce{5};
constexpr std::chrono::milliseconds kRetryAfter{20};

class Meeting {
 public:
  Meeting(int rank, const Token& token, const net::Descriptor& listener,
          const std::vector<net::InternetAddress>& ranks)
      : rank_(rank), token_(token), listener_(listener), ranks_(ranks) {
    for (auto& channel : links_) channel.resize(ranks.size());
    for (int peer = 0; peer < rank_; ++peer)
      for (uint32_t channel = 0; channel < kChannels; ++channel)
        calls_.push_back({{}, peer, static_cast<Channel>(channel)});
  }

  Links run(Clock::time_point deadline) {
    const auto began = Clock::now();
    missing_ = kChannels * (ranks_.size() - 1);
    while (missing_ > 0) {
      if (Clock::now() >= deadline)
        fail(Code::kDeadlineExceeded, "rank ", rank_, " has waited for ",
             std::chrono::duration<double>(Clock::now() - began).count(),
             " s to be connected with ", missing_ranks());
      for (Call& call : calls_)
        if (!call.socket && Clock::now() >= call.next_try) dial(call);
      poll_once(deadline);
    }
    return std::move(links_);
  }

 private:
  // A connection on which something is to be heard.
  struct Line {
    net::Descriptor socket;
    Hello heard;
    size_t got = 0;
  };
  struct Call : Line {
    Call(Line line, int peer, Channel channel)
        : Line(std::move(line)), peer(peer), channel(channel) {}
    int peer;
    Channel channel;
    bool introduced = false;
    bool ever_introduced = false;
    Clock::time_point next_try = {};
  };
  struct Stranger : Line {
    Clock::time_point until;
  };
  enum class Heard { kAll, kNotYet, kNothing };

  Hello hello(int to, Channel channel, bool answer) const {
    Hello hello{.token = token_,
                .size = static_cast<uint32_t>(ranks_.size()),
                .from = static_cast<uint32_t>(rank_),
                .to = static_cast<uint32_t>(to),
                .channel = channel,
                .answer = answer ? 1u : 0u};
    seal(hello);
    return hello;
  }

  static bool say(const net::Descriptor& socket, const Hello& hello) {
    return send(socket.get(), &hello, sizeof hello, MSG_NOSIGNAL | MSG_DONTWAIT) == sizeof hello;
  }

  static Heard listen_to(Line& line) {
    const ssize_t got = recv(line.socket.get(), reinterpret_cast<char*>(&line.heard) + line.got,
                             sizeof(Hello) - line.got, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))
      return Heard::kNotYet;
    if (got <= 0) return Heard::kNothing;
    line.got += static_cast<size_t>(got);
    return line.got == sizeof(Hello) ? Heard::kAll : Heard::kNotYet;
  }

  bool is_ours(const Hello& heard) const { return is_intact(heard) && heard.token == token_; }

  void check_version(const Hello& heard) const {
    if (heard.version != kProtocolVersion)
      fail(Code::kFailedPrecondition, "rank ", heard.from, " speaks version ", heard.version,
           " of the protocol, and rank ", rank_, " version ", kProtocolVersion,
           ": all ranks must run the same program");
  }

  net::Descriptor& link(int peer, Channel channel) {
    return links_[static_cast<size_t>(channel)][static_cast<size_t>(peer)];
  }

  void dial(Call& call) {
    call.got = 0;
    call.introduced = false;
    call.next_try = Clock::now() + kRetryAfter;
    try {
      call.socket = net::start_connecting(ranks_[static_cast<size_t>(call.peer)]);
    } catch (const Error& error) {
      if (error.code() != Code::kUnavailable) throw;
    }
  }

  void hang_up(Call& call) {
    call.socket.reset();
    call.next_try = Clock::now() + kRetryAfter;
  }

  // A rank listens until it is connected with all others: it is so on a connection that has broken
  // before this rank knew, or it has ended.
  [[noreturn]] void give_up(const Call& call) {
    fail(Code::kUnavailable, "rank ", call.peer, " at ",
         ranks_[static_cast<size_t>(call.peer)].text(), " does not listen any more; rank ", rank_,
         " has lost a connection with it while the group formed");
  }

  // Whether the call is over.
  bool proceed(Call& call, short events) {
    if (!call.introduced) {
      if (!(events & (POLLOUT | POLLERR | POLLHUP))) return false;
      const int error = net::connection_error(call.socket.get());
      if (error == ECONNREFUSED && call.ever_introduced) give_up(call);
      if (error != 0 || !say(call.socket, hello(call.peer, call.channel, false))) {
        hang_up(call);
        return false;
      }
      call.introduced = call.ever_introduced = true;
    }
    const Heard heard = listen_to(call);
    if (heard == Heard::kNotYet) return false;
    if (heard == Heard::kAll && is_ours(call.heard)) {
      check_version(call.heard);
      if (call.heard.answer == 1 && call.heard.from == static_cast<uint32_t>(call.peer) &&
          call.heard.to == static_cast<uint32_t>(rank_) && call.heard.channel == call.channel) {
        link(call.peer, call.channel) = std::move(call.socket);
        --missing_;
        return true;
      }
    }
    hang_up(call);
    return false;
  }

  // Whether nothing more is to be heard from a stranger.
  bool proceed(Stranger& stranger) {
    const Heard heard = listen_to(stranger);
    if (heard != Heard::kAll) return heard == Heard::kNothing;
    const Hello& hello = stranger.heard;
    if (!is_ours(hello) || hello.answer != 0) return true;
    check_version(hello);
    const auto size = static_cast<uint32_t>(ranks_.size());
    if (hello.size != size || hello.from >= size || hello.from <= static_cast<uint32_t>(rank_) ||
        hello.to != static_cast<uint32_t>(rank_) ||
        static_cast<uint32_t>(hello.channel) >= kChannels)
      return true;
    // One that calls again has lost the connection that there was.
    const int peer = static_cast<int>(hello.from);
    net::Descriptor& link = this->link(peer, hello.channel);
    if (say(stranger.socket, this->hello(peer, hello.channel, true))) {
      if (!link) --missing_;
      link = std::move(stranger.socket);
    }
    return true;
  }

  void admit() {
    while (true) {
      net::Descriptor socket(
          accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
      const bool none_left = !socket && (errno == EMFILE || errno == ENFILE);
      if (!socket && !none_left) return;
      if (none_left && strangers_.empty())
        fail(Code::kResourceExhausted, "too many open files (ulimit -n) to connect rank ", rank_,
             " with ", ranks_.size() - 1, " others");
      if (none_left || strangers_.size() >= kMaxStrangers) strangers_.pop_front();
      if (socket) {
        strangers_.emplace_back();
        strangers_.back().socket = std::move(socket);
        strangers_.back().until = Clock::now() + kTimeToIntroduce;
      }
    }
  }

  void poll_once(Clock::time_point deadline) {
    std::vector<pollfd> polled{{listener_.get(), POLLIN, 0}};
    for (const Call& call : calls_)
      polled.push_back(
          {call.socket.get(), static_cast<short>(call.introduced ? POLLIN : POLLOUT), 0});
    for (const Stranger& stranger : strangers_)
      polled.push_back({stranger.socket.get(), POLLIN, 0});
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
    poll(polled.data(), polled.size(),
         static_cast<int>(std::clamp<int64_t>(left, 0, kRetryAfter.count())));
    auto of = polled.begin() + 1;
    std::erase_if(calls_, [&](Call& call) {
      const short events = (of++)->revents;
      return call.socket && events != 0 && proceed(call, events);
    });
    strangers_.remove_if([&](Stranger& stranger) {
      const bool speaks = (of++)->revents != 0;
      return speaks ? proceed(stranger) : Clock::now() >= stranger.until;
    });
    if (polled[0].revents != 0) admit();
  }

  std::string missing_ranks() {
    std::string names;
    for (int peer = 0; peer < static_cast<int>(ranks_.size()); ++peer)
      for (uint32_t channel = 0; peer != rank_ && channel < kChannels; ++channel)
        if (!link(peer, static_cast<Channel>(channel))) {
          names += str(names.empty() ? "" : ", ", "rank ", peer, " at ",
                       ranks_[static_cast<size_t>(peer)].text());
          break;
        }
    return names;
  }

  const int rank_;
  const Token token_;
  const net::Descriptor& listener_;
  const std::vector<net::InternetAddress>& ranks_;
  Links links_;
  std::vector<Call> calls_;
  std::list<Stranger> strangers_;
  size_t missing_ = 0;
};

}  // namespace

Links connect_mesh(int rank, const Token& token, const net::Descriptor& listener,
                   const std::vector<net::InternetAddress>& ranks, Clock::time_point deadline) {
  return Meeting(rank, token, listener, ranks).run(deadline);
}

}  // namespace cohort::tcp
