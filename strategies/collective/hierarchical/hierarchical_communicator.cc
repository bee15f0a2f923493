#include "strategies/collective/hierarchical/hierarchical_communicator.h"

#include <algorithm>
#include <cstring>
#include <map>

#include "core/base/comma_separated.h"
#include "core/collective/parts.h"
#include "core/collective/split.h"
#include "strategies/collective/hierarchical/group_end.h"
#include "strategies/collective/hierarchical/levels.h"
#include "strategies/collective/hierarchical/lookout.h"
#include "strategies/collective/tcp/tcp_communicator.h"

namespace cohort {
namespace {

using hierarchical::GroupEnd;
using hierarchical::Levels;
using hierarchical::Lookout;
using hierarchical::Topology;
using std::chrono::milliseconds;

// The communicators of a group, in the order in which they need each other.
struct Connections {
  std::unique_ptr<Communicator> control;  // for the group's end
  std::unique_ptr<Communicator> flat;     // all ranks
  std::unique_ptr<Communicator> leaders;  // the first ranks of the hosts; null elsewhere
  std::unique_ptr<Levels> levels;
};

milliseconds tcp_limit(std::optional<milliseconds> limit) { return limit.value_or(kNoTimeLimit); }

// A call in words, for an error.
struct Words {
  char text[1024] = {};
};

Words words_of(const Call& call) {
  Words words;
  describe(call).copy(words.text, sizeof words.text - 1);
  return words;
}

class HierarchicalCommunicator final : public QueuedCommunicator {
 public:
  HierarchicalCommunicator(Connections connections, std::optional<milliseconds> limit)
      : limit_(limit),
        flat_(std::move(connections.flat)),
        leaders_(std::move(connections.leaders)),
        levels_(std::move(connections.levels)),
        end_(std::move(connections.control), [this](const Error& error) {
          levels_->abort(error);
          if (leaders_ != nullptr) leaders_->abort(error);
          flat_->abort(error);
        }) {}

  ~HierarchicalCommunicator() override {
    const TcpRankName own = tcp_rank_name(*flat_, rank());
    end_.end(Error(Code::kUnavailable, own.text + " has left its group", own.task));
    end_queue();
  }

  int rank() const override { return topology().rank(); }
  int size() const override { return topology().size(); }

  std::unique_ptr<Communicator> split(int color, int key) override;
  void abort(const Error& error) override {
    end_.abort(error);
    parts_.abort(error);
  }
  std::shared_ptr<Buffer> allocate(size_t bytes) override {
    return levels_->host().allocate(bytes);
  }

 private:
  const Topology& topology() const { return levels_->topology(); }

  void run_now(const Call& call) override {
    end_.begin_call();
    try {
      agree(call);
      end_.set_joined();
      const auto begin = std::chrono::steady_clock::now();
      std::visit([&](const auto& own) { work(call, own); }, call);
      end_.finish_call();
      observe(call, begin);
    } catch (const Error& error) {
      fail_call(describe(call), error);
    }
  }

  // Whom a rank has waited for too long may have waited for another one, on whatever level.
  [[noreturn]] void fail_call(const std::string& call, const Error& error) {
    if (!limit_ || error.code() != Code::kDeadlineExceeded) end_.fail_call(error);
    const GroupEnd::Missing missing = end_.call_roll();
    if (missing.ranks.empty()) end_.fail_call(error);
    const auto name = [this](int r) { return tcp_rank_name(*flat_, r).text; };
    end_.fail_call(Error(error.code(),
                         str(call, " took longer than ", limit_->count(), " ms: ", missing.why, ' ',
                             comma_separated(missing.ranks, name)),
                         tcp_rank_name(*flat_, missing.ranks[0]).task));
  }

  // Throws what keeps a part of the group, which begins to form, from becoming one any more.
  std::function<void()> formation_check() const {
    using Clock = std::chrono::steady_clock;
    return [this, began = Clock::now()] {
      end_.check_stopped();
      if (limit_ && Clock::now() - began >= *limit_)
        fail(Code::kDeadlineExceeded, "the ranks of a part were connected, but have not become a ",
             "group within ", limit_->count(), " ms");
    };
  }

  // A message that its receiver has no room for is the only mistake that leaves a group as it was.
  template <typename Work>
  auto guarded(const Work& work) {
    try {
      return work();
    } catch (const Error& error) {
      end_.check();
      if (error.code() != Code::kInvalidArgument) end_.end(error);
      end_.check();
      throw;
    }
  }

  // Messages go over the communicator of all ranks, which has numbers of its own for them.
  int64_t post(const SendCall& call) override {
    return add_message([&] { return flat_->start_send(call); });
  }
  int64_t post(const ReceiveCall& call) override {
    return add_message([&] { return flat_->start_receive(call); });
  }
  template <typename Start>
  int64_t add_message(const Start& start) {
    end_.check();
    messages_[posted_] = guarded(start);
    return posted_++;
  }
  Received wait_for_message(int64_t id) override {
    const auto message = messages_.extract(id);
    if (!message) refuse_unknown_message(id);
    return guarded([&] { return flat_->wait(message.mapped()); });
  }
  bool is_message_done(int64_t id) override {
    const auto message = messages_.find(id);
    if (message == messages_.end()) refuse_unknown_message(id);
    return flat_->is_done(message->second);
  }
  // Returns when all ranks make the same call.
  void agree(const Call& call) {
    HostCommunicator& host = levels_->host();
    host.agree(call, ++agreed_);
    int32_t odd = leaders_ != nullptr ? find_odd_host(call) : 0;
    if (host.size() > 1) host.broadcast(&odd, &odd, sizeof odd, 0);
    if (odd != 0) refuse(call, odd);
  }

  // The first host whose ranks do not make the same call as those of the first; else 0.
  int32_t find_odd_host(const Call& call) {
    const Fingerprint own = fingerprint(call, agreed_);
    std::vector<Fingerprint> calls(static_cast<size_t>(leaders_->size()));
    const std::vector<int64_t> bytes(calls.size(), sizeof own);
    run_tcp_collective(*leaders_, AllGatherCall{&own, calls.data(), bytes}, agreed_, &call);
    const auto odd = std::find_if(calls.begin(), calls.end(),
                                  [&](const Fingerprint& f) { return !(f == calls[0]); });
    return odd == calls.end() ? 0 : static_cast<int32_t>(odd - calls.begin());
  }

  [[noreturn]] void refuse(const Call& call, int odd) {
    Words words[2];
    if (leaders_ != nullptr) {
      const auto all = tell_all(*leaders_, "the sizes of a call", words_of(call));
      words[0] = all[0];
      words[1] = all[static_cast<size_t>(odd)];
    }
    levels_->host().broadcast(words, words, sizeof words, 0);
    throw mismatch(agreed_, topology().ranks(0)[0], words[0].text, topology().ranks(odd)[0],
                   words[1].text);
  }

  void work(const Call&, const BarrierCall&) {}
  template <typename C>
  requires requires(Levels& levels, const C& call) { levels.run(call); }
  void work(const Call&, const C& own) { levels_->run(own); }
  template <typename C>
  void work(const Call& call, const C&) {
    run_tcp_collective(*flat_, call, agreed_);
  }

  const std::optional<milliseconds> limit_;
  const std::unique_ptr<Communicator> flat_, leaders_;
  const std::unique_ptr<Levels> levels_;
  uint64_t agreed_ = 0;  // calls
  std::map<int64_t, int64_t> messages_;
  int64_t posted_ = 0;
  Parts parts_;
  GroupEnd end_;  // last: it uses what is above
};

std::unique_ptr<Communicator> HierarchicalCommunicator::split(int color, int key) {
  const GroupPart part = choose_part(*this, color, key);
  std::vector<int> hosts;
  for (const int r : part.members) hosts.push_back(topology().host_of(r));
  auto different = hosts;
  std::sort(different.begin(), different.end());
  different.erase(std::unique(different.begin(), different.end()), different.end());
  // What a part needs, its ranks see alike.
  const bool in_host = different.size() < hosts.size() || hosts.size() == 1;
  const bool over_tcp = different.size() > 1;
  // All ranks are here: what one that is ready does to the group does not keep the others from it.
  end_.begin_call();
  end_.set_joined();
  try {
    auto tcp = split_tcp_communicator(*flat_, over_tcp ? color : -1, key,
                                      in_host ? milliseconds(kNoTimeLimit) : tcp_limit(limit_));
    auto host = levels_->host().split_host(in_host ? color : -1, key);
    std::unique_ptr<Communicator> own;
    if (host == nullptr)
      own = std::move(tcp);
    else if (tcp == nullptr)
      own = std::move(host);
    else
      own = make_hierarchical_communicator({.tcp = std::move(tcp),
                                            .host = std::move(host),
                                            .hosts = std::move(hosts),
                                            .limit = limit_,
                                            .check = formation_check()});
    end_.finish_call();
    return parts_.add(std::move(own));
  } catch (const Error& error) {
    fail_call("a split", error);
  }
}

}  // namespace

std::unique_ptr<Communicator> make_hierarchical_communicator(HierarchicalParts parts) {
  const int rank = parts.tcp->rank();
  Topology topology(parts.hosts, rank);
  parts.host->renumber(topology.neighbours(), topology.size());
  std::optional<Lookout> lookout(std::in_place, parts.check, *parts.tcp);
  auto flat = split_tcp_communicator(*parts.tcp, 0, rank, tcp_limit(parts.limit));
  // Of those that carry a lane, one on each host.
  const auto join_lane = [&](int lane) {
    std::vector<int> carriers;
    for (int h = 0; h < topology.num_hosts(); ++h) carriers.push_back(topology.carrier(h, lane));
    const bool carried = topology.carrier(topology.host(), lane) == rank;
    return split_tcp_communicator(*parts.tcp, carried ? 0 : -1, topology.host(),
                                  tcp_limit(parts.limit), carriers);
  };
  auto leaders = join_lane(0);
  std::vector<std::unique_ptr<Communicator>> lanes;
  for (int lane = 0; lane < topology.num_lanes(); ++lane)
    if (auto own = join_lane(lane)) lanes.push_back(std::move(own));
  lookout.reset();  // while what it would end is still here
  Connections connections{std::move(parts.tcp), std::move(flat), std::move(leaders), nullptr};
  connections.levels =
      std::make_unique<Levels>(std::move(topology), std::move(parts.host), std::move(lanes));
  return std::make_unique<HierarchicalCommunicator>(std::move(connections), parts.limit);
}

}  // namespace cohort
