#include "strategies/collective/tcp/mesh.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <list>
#include <poll.h>

#include "core/base/comma_separated.h"
#include "core/base/error.h"
#include "strategies/cluster/coordination/host_probe.h"
#include "strategies/cluster/net/socket.h"

namespace cohort::tcp {
namespace {

// Callers that have not said who they are, beside as many as the ranks that call have connections,
// which may come all at once: more push out the oldest ones.
constexpr size_t kMaxStrangers = 64;
constexpr std::chrono::seconds kTimeToIntroduce{5};
constexpr std::chrono::milliseconds kRetryAfter{20};
// A group forms sooner, where nothing is wrong.
constexpr std::chrono::milliseconds kPatience{500};

class Meeting {
 public:
  Meeting(int rank, const Token& token, const net::Descriptor& listener,
          const std::vector<net::InternetAddress>& ranks, const MeshOptions& options)
      : rank_(rank),
        token_(token),
        listener_(listener),
        ranks_(ranks),
        options_(options),
        max_strangers_(kMaxStrangers + kChannels * (ranks.size() - 1 - static_cast<size_t>(rank))),
        hosts_(ranks.begin(), ranks.end()) {
    for (auto& channel : links_) channel.resize(ranks.size());
    for (int peer = 0; peer < rank_; ++peer)
      for (uint32_t channel = 0; channel < kChannels; ++channel)
        calls_.push_back({{}, peer, static_cast<Channel>(channel)});
  }

  Links run() {
    const auto began = Clock::now();
    missing_ = kChannels * (ranks_.size() - 1);
    while (missing_ > 0) {
      if (options_.check) options_.check();
      if (Clock::now() >= options_.deadline) throw late(Clock::now() - began);
      for (Call& call : calls_)
        if (!call.link && Clock::now() >= call.next_try) dial(call);
      poll_once();
      if (Clock::now() - began >= kPatience) look_after_hosts();
    }
    return std::move(links_);
  }

 private:
  // A connection on which something is to be heard.
  struct Line {
    net::Stream link;
    Hello heard;
    size_t got = 0;
    int error = 0;  // why nothing more will be heard
  };
  struct Call : Line {
    Call(Line line, int peer, Channel channel)
        : Line(std::move(line)), peer(peer), channel(channel) {}
    int peer;
    Channel channel;
    bool connected = false;
    std::string trouble = {};  // of its last handshake
    bool introduced = false;
    bool ever_introduced = false;
    Clock::time_point next_try = {};
  };
  struct Stranger : Line {
    std::string name;
    Clock::time_point until;
  };
  enum class Heard { kAll, kNotYet, kNothing };

  Hello hello(int to, Channel channel, uint32_t answer) const {
    Hello hello{.token = token_,
                .size = static_cast<uint32_t>(ranks_.size()),
                .from = static_cast<uint32_t>(rank_),
                .to = static_cast<uint32_t>(to),
                .channel = channel,
                .answer = answer};
    seal(hello);
    return hello;
  }

  static bool say(net::Stream& link, Hello hello) {
    const iovec all{&hello, sizeof hello};
    return link.write({&all, 1}) == sizeof hello;
  }

  static Heard listen_to(Line& line) {
    const iovec room{reinterpret_cast<char*>(&line.heard) + line.got, sizeof(Hello) - line.got};
    const ssize_t got = line.link.read({&room, 1});
    line.error = got < 0 ? errno : 0;
    if (got < 0 && net::would_block(errno)) return Heard::kNotYet;
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

  net::Stream& link(int peer, Channel channel) {
    return links_[static_cast<size_t>(channel)][static_cast<size_t>(peer)];
  }

  void dial(Call& call) {
    call.got = 0;
    call.connected = call.introduced = false;
    call.next_try = Clock::now() + kRetryAfter;
    try {
      call.link = options_.security.connect(
          net::start_connecting(ranks_[static_cast<size_t>(call.peer)]), net::Stream::End::kCaller);
    } catch (const Error& error) {
      if (error.code() != Code::kUnavailable) throw;
    }
  }

  void hang_up(Call& call) {
    call.link.reset();
    call.next_try = Clock::now() + kRetryAfter;
  }

  // A rank listens until it is connected with all others: it is so on a connection that has broken
  // before this rank knew, or it has ended.
  [[noreturn]] void give_up(const Call& call) {
    fail(Code::kUnavailable, name(call.peer), " does not listen any more; rank ", rank_,
         " has lost a connection with it while the group formed");
  }

  // Whether the call is over.
  bool proceed(Call& call, short events) {
    if (!call.connected) {
      if (!(events & (POLLOUT | POLLERR | POLLHUP))) return false;
      const int error = net::connection_error(call.link.fd());
      if (error == ECONNREFUSED && call.ever_introduced) give_up(call);
      if (error != 0) {
        hang_up(call);
        return false;
      }
      call.connected = true;
    }
    if (!call.introduced) {
      if (!shake_hands(call)) return false;
      // A failure is one of listening, too, after what the other has still said.
      say(call.link, hello(call.peer, call.channel, 0));
      call.introduced = call.ever_introduced = true;
    }
    const Heard heard = listen_to(call);
    if (heard == Heard::kNotYet) return false;
    if (call.error == EPROTO)
      fail(call.link.encrypted() ? Code::kPermissionDenied : Code::kFailedPrecondition,
           name(call.peer), ' ', call.link.failure(EPROTO));
    if (heard == Heard::kAll && is_ours(call.heard)) {
      check_version(call.heard);
      const bool answers = call.heard.from == static_cast<uint32_t>(call.peer) &&
                           call.heard.to == static_cast<uint32_t>(rank_) &&
                           call.heard.channel == call.channel;
      if (answers && call.heard.answer == kNotCertified)
        fail(Code::kPermissionDenied, name(call.peer), " refuses rank ", rank_,
             ", whose certificate is not for ", task(rank_), " of job \"", options_.job_id, '"');
      if (answers && call.heard.answer == kLinked) {
        link(call.peer, call.channel) = std::move(call.link);
        --missing_;
        return true;
      }
    }
    hang_up(call);
    return false;
  }

  // Whether that is done. An end that is not who it should be, or speaks plain text, is an error at
  // once: it has the address that the rank has told.
  bool shake_hands(Call& call) {
    const auto peer = static_cast<size_t>(call.peer);
    try {
      if (!call.link.shake_hands()) return false;
    } catch (const Error& error) {
      if (error.code() == Code::kPermissionDenied || error.code() == Code::kFailedPrecondition)
        fail(error.code(), name(call.peer), ' ', error.message());
      call.trouble = error.message();
      hang_up(call);
      return false;
    }
    if (!call.link.encrypted()) return true;
    try {
      options_.security.check_called(call.link, options_.hosts[peer], options_.job_id,
                                     task(call.peer));
    } catch (const Error& error) {
      throw error.with_context(name(call.peer));
    }
    return true;
  }

  void refuse(const Stranger& stranger, const std::string& why) {
    refusal_ = str("; the last caller that was refused, ", stranger.name, ", ", why);
  }

  bool is_certified(const Stranger& stranger, int peer) {
    try {
      options_.security.tasks_of(stranger.link).check(options_.job_id, task(peer));
      return true;
    } catch (const Error& error) {
      refuse(stranger, str("is not accepted: ", error.message()));
      return false;
    }
  }

  // Whether nothing more is to be heard from a stranger.
  bool proceed(Stranger& stranger) {
    try {
      if (!stranger.link.shake_hands()) return false;
    } catch (const Error& error) {
      // One that has just gone may be the other channel of who was refused on the first.
      if (error.code() != Code::kUnavailable) refuse(stranger, error.message());
      return true;
    }
    const Heard heard = listen_to(stranger);
    if (heard == Heard::kNothing && stranger.error == EPROTO)
      refuse(stranger, stranger.link.failure(EPROTO));
    if (heard != Heard::kAll) return heard == Heard::kNothing;
    const Hello& hello = stranger.heard;
    if (!is_ours(hello) || hello.answer != 0) return true;
    check_version(hello);
    const auto size = static_cast<uint32_t>(ranks_.size());
    if (hello.size != size || hello.from >= size || hello.from <= static_cast<uint32_t>(rank_) ||
        hello.to != static_cast<uint32_t>(rank_) ||
        static_cast<uint32_t>(hello.channel) >= kChannels)
      return true;
    const int peer = static_cast<int>(hello.from);
    if (!is_certified(stranger, peer)) {
      say(stranger.link, this->hello(peer, hello.channel, kNotCertified));
      return true;
    }
    // One that calls again has lost the connection that there was.
    net::Stream& link = this->link(peer, hello.channel);
    if (say(stranger.link, this->hello(peer, hello.channel, kLinked))) {
      if (!link) --missing_;
      link = std::move(stranger.link);
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
      if (none_left || strangers_.size() >= max_strangers_) strangers_.pop_front();
      if (socket) {
        strangers_.emplace_back();
        const auto address = net::InternetAddress::of_peer(socket);
        strangers_.back().name = address ? address->text() : "who has gone already";
        strangers_.back().link =
            options_.security.connect(std::move(socket), net::Stream::End::kCalled);
        strangers_.back().until = Clock::now() + kTimeToIntroduce;
      }
    }
  }

  void poll_once() {
    std::vector<pollfd> polled{{listener_.get(), POLLIN, 0}};
    for (const Call& call : calls_)
      polled.push_back(
          {call.link.fd(), call.connected ? call.link.events() : static_cast<short>(POLLOUT), 0});
    for (const Stranger& stranger : strangers_)
      polled.push_back({stranger.link.fd(), stranger.link.events(), 0});
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(options_.deadline - Clock::now()).count();
    poll(polled.data(), polled.size(),
         static_cast<int>(std::clamp<int64_t>(left, 0, kRetryAfter.count())));
    auto of = polled.begin() + 1;
    std::erase_if(calls_, [&](Call& call) {
      const short events = (of++)->revents;
      return call.link && events != 0 && proceed(call, events);
    });
    strangers_.remove_if([&](Stranger& stranger) {
      const bool speaks = (of++)->revents != 0;
      return speaks ? proceed(stranger) : Clock::now() >= stranger.until;
    });
    if (polled[0].revents != 0) admit();
  }

  // All ranks listen before they tell where, until they are connected.
  void look_after_hosts() {
    const auto now = Clock::now();
    for (const int peer : missing_ranks()) {
      auto& host = hosts_[static_cast<size_t>(peer)];
      if (now < host.next_question() ||
          !host.ask(now, options_.silence / coordination::HostProbe::kEnough))
        continue;
      throw Error(Code::kUnavailable,
                  str(full_name(peer), " cannot be reached from ", full_name(rank_),
                      ": its host has answered nothing for ",
                      static_cast<double>(options_.silence.count()) / 1000, " s"),
                  at_fault(peer));
    }
  }

  std::vector<int> missing_ranks() {
    std::vector<int> missing;
    for (int peer = 0; peer < static_cast<int>(ranks_.size()); ++peer)
      for (uint32_t channel = 0; peer != rank_ && channel < kChannels; ++channel)
        if (!link(peer, static_cast<Channel>(channel))) {
          missing.push_back(peer);
          break;
        }
    return missing;
  }
  Error late(std::chrono::duration<double> waited) {
    const auto in_words = [this](int peer) { return full_name(peer) + trouble_with(peer); };
    const std::vector<int> missing = missing_ranks();
    return Error(Code::kDeadlineExceeded,
                 str("rank ", rank_, " has waited for ", waited.count(), " s to be connected with ",
                     comma_separated(missing, in_words), refusal_),
                 at_fault(missing[0]));
  }

  std::string trouble_with(int peer) const {
    for (const Call& call : calls_) {
      if (call.peer != peer) continue;
      if (call.connected && !call.introduced) return ", which has not ended the handshake of TLS";
      if (!call.trouble.empty()) return ", which " + call.trouble;
    }
    return "";
  }
  std::string name(int rank) const {
    return str("rank ", rank, " at ", ranks_[static_cast<size_t>(rank)].text());
  }
  std::string full_name(int rank) const {
    if (options_.tasks.empty()) return name(rank);
    return str(task(rank), " (rank ", rank, ") at ", ranks_[static_cast<size_t>(rank)].text());
  }
  // As errors name it.
  std::string at_fault(int rank) const { return options_.tasks.empty() ? "" : task(rank); }
  std::string task(int rank) const {
    return options_.tasks.empty() ? str("rank ", rank) : options_.tasks[static_cast<size_t>(rank)];
  }

  const int rank_;
  const Token token_;
  const net::Descriptor& listener_;
  const std::vector<net::InternetAddress>& ranks_;
  const MeshOptions& options_;
  const size_t max_strangers_;
  Links links_;
  std::vector<Call> calls_;
  std::vector<coordination::HostProbe> hosts_;
  std::list<Stranger> strangers_;
  size_t missing_ = 0;
  std::string refusal_;  // of the last caller that was refused
};

}  // namespace

Links connect_mesh(int rank, const Token& token, const net::Descriptor& listener,
                   const std::vector<net::InternetAddress>& ranks, const MeshOptions& options) {
  return Meeting(rank, token, listener, ranks, options).run();
}

}  // namespace cohort::tcp
