#include "strategies/collective/host/shared_memory_communicator.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/collective/parts.h"
#include "strategies/collective/host/host_exchange.h"
#include "strategies/collective/host/host_group.h"
#include "strategies/collective/host/host_reduction.h"
#include "strategies/collective/host/region_registry.h"
#include "strategies/collective/host/shared_memory_bootstrap.h"
#include "strategies/collective/host/shared_messages.h"

namespace cohort {
namespace {

void write_text(Post& post, const std::string& text) {
  post.text_bytes = static_cast<int32_t>(std::min(text.size(), Post::kTextBytes));
  std::memcpy(post.text, text.data(), static_cast<size_t>(post.text_bytes));
}

std::string read_text(const Post& post) {
  return {post.text,
          static_cast<size_t>(read_count(post.text_bytes, static_cast<int32_t>(Post::kTextBytes)))};
}

// Ends the call of a rank when this goes.
struct CallEnd {
  ~CallEnd() { memory.end(); }
  PeerMemory& memory;
};

class SharedMemoryCommunicator final : public HostCommunicator {
 public:
  SharedMemoryCommunicator(std::shared_ptr<HostGroup> group, int rank)
      : group_(std::move(group)),
        rank_(rank),
        meeting_(group_->control, group_->peers, rank, size(), group_->limit, group_->stall),
        memory_(*group_, rank),
        host_{group_->control, meeting_, memory_, rank, size()},
        exchange_(host_),
        reduction_(host_),
        messages_(host_) {}

  // What waits in the background, here or on other ranks, would wait for ever.
  ~SharedMemoryCommunicator() override {
    meeting_.abort(Error(Code::kUnavailable, meeting_.name(rank_) + " has left its group",
                         meeting_.peer(rank_)));
    end_queue();
  }

  int rank() const override { return rank_; }
  int size() const override { return group_->size(); }

  std::unique_ptr<Communicator> split(int color, int key) override {
    return parts_.add(split_host(color, key));
  }
  std::unique_ptr<HostCommunicator> split_host(int color, int key) override {
    const auto part = split_host_group(*this, *group_, color, key);
    if (part.group == nullptr) return nullptr;
    return std::make_unique<SharedMemoryCommunicator>(part.group, part.rank);
  }

  void abort(const Error& error) override {
    meeting_.abort(error);
    parts_.abort(error);
  }

  void renumber(std::vector<int> numbers, int size) override {
    meeting_.renumber(std::move(numbers));
    meeting_.set_warns(false);
    whole_size_ = size;
  }

  void agree(const Call& call, uint64_t collective) override {
    Post& post = begin_turn(call);
    collective_ = collective;
    post.num_events = 0;
    const int number = meeting_.number(rank_);
    std::optional<Error> mistake = find_mistake(call, number, whole_size_);
    // Where all ranks of this host make it, those of others have to be told whose it is.
    if (mistake) mistake = mistake->with_context(str("rank ", number));
    note_mistake(mistake, post);
    meeting_.set_warns(true);
    meeting_.meet([&] { return describe(call); });
    meeting_.set_warns(false);  // whoever is late in the call itself waits for the other hosts
    check_same(call, post);
  }

  std::shared_ptr<Buffer> allocate(size_t bytes) override {
    return group_->one_process() ? allocate_host_buffer(bytes) : allocate_shared_buffer(bytes);
  }

 private:
  int64_t post(const SendCall& call) override { return messages_.start(call); }
  int64_t post(const ReceiveCall& call) override { return messages_.start(call); }
  Received wait_for_message(int64_t id) override { return messages_.wait(id); }
  bool is_message_done(int64_t id) override { return messages_.is_done(id); }

  void run_now(const Call& call) override {
    const auto waiting = [&] { return describe(call); };
    Post& post = begin_turn(call);
    const CallEnd end{memory_};
    prepare(call, post);
    meeting_.meet(waiting);
    const auto begin =
        has_observer() ? std::chrono::steady_clock::now() : std::chrono::steady_clock::time_point();
    // All ranks see the same posts, so that all find the same.
    check(call, post);
    bool reachable = true;
    if (memory_.has_news(turn_)) {
      memory_.attach(turn_);
      meeting_.part(waiting);
      reachable = memory_.settle();
    }
    std::visit([&](const auto& own) { work(own, reachable, waiting); }, call);
    observe(call, begin);
  }

  Post& begin_turn(const Call& call) {
    // Posts of the last collective may not have been read by all.
    if (meeting_.ended()) throw meeting_.error();
    collective_ = ++turn_;
    Post& post = group_->control.post(rank_, turn_);
    post.fingerprint = fingerprint(call, turn_);
    return post;
  }

  static void note_mistake(const std::optional<Error>& mistake, Post& post) {
    post.mistake = mistake.has_value();
    if (mistake) write_text(post, mistake->message());
  }

  // Tells the others of this rank's call and memory.
  void prepare(const Call& call, Post& post) {
    post.num_runs = 0;
    memory_.begin(post);
    note_mistake(find_mistake(call, rank_, size()), post);
    if (post.mistake == 0) std::visit([&](const auto& own) { announce(own, post); }, call);
  }

  void check(const Call& call, Post& post) {
    check_same(call, post);
    if (!std::holds_alternative<AllToAllCall>(call)) return;
    if (const auto pair = exchange_.take_sizes(turn_))
      refuse(call, post, pair->first, pair->second);
  }

  void check_same(const Call& call, Post& post) {
    const Fingerprint first = group_->control.post(0, turn_).fingerprint;
    for (int r = 1; r < size(); ++r)
      if (!(group_->control.post(r, turn_).fingerprint == first)) refuse(call, post, 0, r);
    for (int r = 0; r < size(); ++r)
      if (group_->control.post(r, turn_).mistake != 0)
        refuse(Error(Code::kInvalidArgument, read_text(group_->control.post(r, turn_))));
  }

  [[noreturn]] void refuse(const Error& error) {
    meeting_.abort(error);
    throw meeting_.error();
  }

  // The ranks tell what they ask for, and all get the same error of it.
  [[noreturn]] void refuse(const Call& call, Post& post, int rank_a, int rank_b) {
    write_text(post, describe(call));
    meeting_.part([&] { return describe(call); });
    refuse(mismatch(collective_, meeting_.number(rank_a),
                    read_text(group_->control.post(rank_a, turn_)), meeting_.number(rank_b),
                    read_text(group_->control.post(rank_b, turn_))));
  }

  HostReduction& mover(const AllReduceCall&) { return reduction_; }
  HostReduction& mover(const ReduceCall&) { return reduction_; }
  HostReduction& mover(const ReduceScatterCall&) { return reduction_; }
  template <typename C>
  HostExchange& mover(const C&) {
    return exchange_;
  }

  void announce(const BarrierCall&, Post&) {}
  template <typename C>
  void announce(const C& call, Post& post) {
    mover(call).set(call);
    mover(call).announce(post);
  }

  template <typename W>
  void work(const BarrierCall&, bool, const W&) {}
  template <typename C, typename W>
  void work(const C& call, bool reachable, const W& waiting) {
    auto& own = mover(call);
    own.work(own.choose(turn_, reachable), turn_, waiting);
  }

  const std::shared_ptr<HostGroup> group_;
  const int rank_;
  uint64_t turn_ = 0;        // calls so far
  uint64_t collective_ = 0;  // the number of the last, in the larger group where there is one
  int whole_size_ = 0;       // of the larger group
  SharedMeeting meeting_;
  PeerMemory memory_;
  const HostRank host_;
  HostExchange exchange_;
  HostReduction reduction_;
  SharedMessages messages_;
  Parts parts_;
};

}  // namespace

std::vector<std::unique_ptr<Communicator>> make_shared_memory_communicators(
    KeyValueStore& store, const SharedMemoryOptions& options) {
  auto made = make_host_communicators(store, options);
  return {std::move_iterator(made.begin()), std::move_iterator(made.end())};
}

std::vector<std::unique_ptr<HostCommunicator>> make_host_communicators(
    KeyValueStore& store, const SharedMemoryOptions& options) {
  const auto group = join_host_group(store, options);
  std::vector<std::unique_ptr<HostCommunicator>> communicators;
  const int first = options.process * options.ranks_per_process;
  for (int r = first; r < first + options.ranks_per_process; ++r)
    communicators.push_back(std::make_unique<SharedMemoryCommunicator>(group, r));
  return communicators;
}

}  // namespace cohort
