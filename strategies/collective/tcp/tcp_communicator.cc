#include "strategies/collective/tcp/tcp_communicator.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <limits>
#include <optional>
#include <thread>

#include "core/base/part.h"
#include "core/base/time_limits.h"
#include "core/collective/background_queue.h"
#include "core/collective/parts.h"
#include "core/collective/reduction.h"
#include "core/collective/split.h"
#include "strategies/cluster/net/socket.h"
#include "strategies/collective/tcp/exchange.h"
#include "strategies/collective/tcp/joining.h"
#include "strategies/collective/tcp/mesh.h"
#include "strategies/collective/tcp/messages.h"
#include "strategies/collective/tcp/operations.h"
#include "strategies/collective/tcp/own_listener.h"
#include "strategies/collective/tcp/payload_setting.h"

namespace cohort {
namespace tcp {
namespace {

// Identifies a message rather than a collective to wait().
constexpr int64_t kMessage = int64_t{1} << 62;
// Up to this much received by each rank, a reduction gathers everything in few rounds and combines
// it everywhere.
constexpr int64_t kGatheredReduction = 64 * 1024;
// From here on, a broadcast goes from rank to rank.
constexpr int64_t kChainedBroadcast = 64 * 1024;
// What is on its way stays in the cache; smaller ones make the ends wait for each other.
constexpr int kSocketBuffer = 512 << 10;

// From here on, it is worth asking the system what a collective has waited for.
constexpr std::chrono::milliseconds kLongCollective{5};

using Range = PartExchange::Range;

size_t at(int rank) { return static_cast<size_t>(rank); }

std::vector<Range> ranges_of(std::span<const int64_t> sizes) {
  std::vector<Range> ranges;
  int64_t end = 0;
  for (const int64_t size : sizes) {
    ranges.push_back({end, end + size});
    end += size;
  }
  return ranges;
}

void copy(const void* source, void* target, int64_t bytes) {
  if (source != target && bytes > 0) std::memmove(target, source, static_cast<size_t>(bytes));
}

const char* plus(const void* memory, int64_t bytes) {
  return static_cast<const char*>(memory) + bytes;
}
char* plus(void* memory, int64_t bytes) { return static_cast<char*>(memory) + bytes; }

using SharedSecurity = std::shared_ptr<const coordination::Security>;

class TcpCommunicator final : public Communicator {
 public:
  TcpCommunicator(const Members& members, Links links, const TcpOptions& options,
                  const net::InternetAddress& bound, SharedSecurity security)
      : options_(options),
        bound_(bound),
        security_(std::move(security)),
        hosts_(members.hosts),
        control_(members.rank, control_peers(members, links, options), options.silence,
                 options.on_unreachable),
        exchange_(control_, prepared(std::move(links[0])), options.check_payloads, options.timeout,
                  options.stall, pays_to_spin(members)),
        messages_(control_, prepared(std::move(links[1])), options.check_payloads, options.timeout,
                  options.stall) {
    // TLS may have read what came right behind a greeting: poll() says nothing of that any more.
    control_.read_notices();
  }

  ~TcpCommunicator() override {
    messages_.flush();
    control_.leave();
    queue_.reset();
    exchange_.flush();
  }

  int rank() const override { return control_.rank(); }
  int size() const override { return control_.size(); }

  void run(const Call& call) override {
    queue_->drain();
    run_now(call);
  }
  void run(const Call& call, uint64_t number, const Call* whole) {
    queue_->drain();
    exchange_.set_name(number, whole);
    run_now(call);
    exchange_.set_name(std::nullopt, nullptr);
  }
  int64_t start(const Call& call) override { return queue_->start(call); }
  int64_t start_send(const SendCall& call) override {
    check_send(call, rank(), size());
    return kMessage + messages_.start(call);
  }
  int64_t start_receive(const ReceiveCall& call) override {
    check_receive(call, rank(), size());
    return kMessage + messages_.start(call);
  }
  Received wait(int64_t operation) override {
    if (operation >= kMessage) return messages_.wait(operation - kMessage);
    queue_->wait(operation);
    return {};
  }
  bool is_done(int64_t operation) override {
    return operation >= kMessage ? messages_.is_done(operation - kMessage)
                                 : queue_->is_done(operation);
  }
  std::unique_ptr<Communicator> split(int color, int key) override {
    return parts_.add(split(color, key, options_, {}));
  }
  std::unique_ptr<Communicator> split(int color, int key, const TcpOptions& options,
                                      const std::vector<int>& numbers);
  void abort(const Error& error) override {
    control_.abort(error);
    parts_.abort(error);
  }
  const TcpOptions& options() const { return options_; }
  TcpRankName name_of(int rank) const { return {control_.name(rank), control_.task(rank)}; }
  void set_observer(const CommunicationObserver& observer) override { observer_ = observer; }

 private:
  static std::vector<Control::Peer> control_peers(const Members& members, Links& links,
                                                  const TcpOptions& options) {
    std::vector<Control::Peer> peers;
    for (size_t p = 0; p < members.endpoints.size(); ++p) {
      net::Stream& link = links[2][p];
      if (link) net::send_at_once(link.fd());
      const int number = members.numbers.empty() ? static_cast<int>(p) : members.numbers[p];
      peers.push_back({members.endpoints[p].text(), options.tasks.empty() ? "" : options.tasks[p],
                       number, std::move(link)});
    }
    return peers;
  }

  static std::vector<net::Stream> prepared(std::vector<net::Stream> links) {
    for (const net::Stream& link : links)
      if (link) {
        net::send_at_once(link.fd());
        net::set_option(link.fd(), SOL_SOCKET, SO_SNDBUF, kSocketBuffer);
        net::set_option(link.fd(), SOL_SOCKET, SO_RCVBUF, kSocketBuffer);
        net::let_ask(link.fd());
      }
    return links;
  }

  // Waiting awake pays only where the others of this host can run meanwhile.
  static bool pays_to_spin(const Members& members) {
    const auto& own = members.endpoints[at(members.rank)];
    const auto here =
        std::count_if(members.endpoints.begin(), members.endpoints.end(),
                      [&](const net::InternetAddress& e) { return e.is_same_host(own); });
    return here <= static_cast<std::ptrdiff_t>(std::thread::hardware_concurrency());
  }

  // What this rank alone can see to be wrong; all are told whose mistake it is.
  void refuse(const Error& mistake) {
    control_.abort(Error(mistake.code(),
                         str(control_.name(rank()), " made a mistake in its collective ",
                             exchange_.next_number(), ", ", mistake.message()),
                         control_.task(rank())));
    control_.check(std::numeric_limits<uint64_t>::max());
  }

  void run_now(const Call& call) {
    if (const auto mistake = find_mistake(call, rank(), size())) refuse(*mistake);
    const auto began = Clock::now();
    std::visit([&](const auto& own) { work(call, own); }, call);
    const auto ended = Clock::now();
    const int64_t bytes = bytes_of(call);
    if (observer_ && bytes > 0) observer_({kind_of(call), bytes, exchange_.first_heard(), ended});
    if (options_.on_sent && ended - began >= kLongCollective) tell_sent();
  }

  void tell_sent() {
    for (int peer = 0; peer < size(); ++peer) {
      if (peer == rank()) continue;
      const auto time = std::max(sent_[at(peer)], exchange_.sending_time(peer));
      options_.on_sent(control_.task(peer), time - sent_[at(peer)]);
      sent_[at(peer)] = time;
    }
  }

  void exchange(const Call& call, Operation&& operation, const Memory* blocks = nullptr) {
    exchange_.run(call, operation, blocks);
  }

  void work(const Call& call, const BarrierCall&) { exchange(call, RoundsOnly()); }
  void work(const Call& call, const AllReduceCall& own) {
    reduce(call, own.segments, own.op, own.dtype, SliceReduction::kEverybody);
  }
  void work(const Call& call, const ReduceCall& own) {
    const Segment segment{own.source, own.root == rank() ? own.target : nullptr, own.count};
    reduce(call, {&segment, 1}, own.op, own.dtype, own.root);
  }
  void work(const Call& call, const ReduceScatterCall& own);
  void work(const Call& call, const BroadcastCall& own);
  void work(const Call& call, const AllGatherCall& own);
  void work(const Call& call, const GatherCall& own);
  void work(const Call& call, const ScatterCall& own);
  void work(const Call& call, const AllToAllCall& own);

  void reduce(const Call& call, std::span<const Segment> segments, ReduceOp op, DType dtype,
              int wanted_by);
  void reduce_gathered(const Call& call, std::span<const Segment> segments, ReduceOp op,
                       DType dtype, int64_t bytes);
  // Memory that is kept from call to call.
  static char* at_least(std::shared_ptr<Buffer>& buffer, int64_t bytes) {
    if (buffer == nullptr || buffer->bytes < static_cast<size_t>(bytes))
      buffer = allocate_host_buffer(static_cast<size_t>(bytes));
    return static_cast<char*>(buffer->data);
  }
  std::vector<Range> nothing() const { return std::vector<Range>(at(size())); }

  const TcpOptions options_;
  const net::InternetAddress bound_;
  const SharedSecurity security_;
  const std::vector<std::string> hosts_;  // as Members'
  Control control_;
  Exchange exchange_;
  Messages messages_;
  Parts parts_;
  CommunicationObserver observer_;
  // By rank, what on_sent has heard of.
  std::vector<std::chrono::microseconds> sent_ =
      std::vector<std::chrono::microseconds>(at(control_.size()));
  std::shared_ptr<Buffer> staging_, unwanted_;
  std::optional<BackgroundQueue> queue_{std::in_place, [this](const Call& call) { run_now(call); }};
};

void TcpCommunicator::reduce(const Call& call, std::span<const Segment> segments, ReduceOp op,
                             DType dtype, int wanted_by) {
  const auto element = static_cast<int64_t>(dtype_size(dtype));
  int64_t count = 0;
  for (const Segment& segment : segments) count += segment.count;
  if (count * element * (size() - 1) <= kGatheredReduction)
    return reduce_gathered(call, segments, op, dtype, count * element);

  SliceReduction::Plan plan{.op = op, .dtype = dtype, .wanted_by = wanted_by};
  for (int r = 0; r <= size(); ++r) plan.boundaries.push_back(part_of(count, r, size()).begin);
  const int64_t first = plan.boundaries[at(rank())] * element;
  const int64_t last = plan.boundaries[at(rank()) + 1] * element;
  int64_t begin = 0, unwanted = 0;
  for (const Segment& segment : segments) {
    const int64_t end = begin + segment.count * element;
    plan.sources.add(segment.source, end - begin);
    plan.targets.add(segment.target, end - begin);
    if (segment.target == nullptr)
      unwanted += std::max<int64_t>(0, std::min(end, last) - std::max(begin, first));
    begin = end;
  }
  char* nobodys = at_least(unwanted_, std::max<int64_t>(unwanted, 1));
  begin = 0;
  for (const Segment& segment : segments) {
    const int64_t end = begin + segment.count * element;
    const int64_t from = std::max(begin, first), bytes = std::min(end, last) - from;
    if (bytes > 0) {
      plan.results.add(segment.target == nullptr ? nobodys : plus(segment.target, from - begin),
                       bytes);
      if (segment.target == nullptr) nobodys += bytes;
    }
    begin = end;
  }
  exchange(call, SliceReduction(std::move(plan), rank(), staging_));
}

void TcpCommunicator::reduce_gathered(const Call& call, std::span<const Segment> segments,
                                      ReduceOp op, DType dtype, int64_t bytes) {
  char* const blocks = at_least(staging_, std::max<int64_t>(bytes * size(), 1));
  int64_t begin = 0;
  const auto element = static_cast<int64_t>(dtype_size(dtype));
  for (const Segment& segment : segments) {
    copy(segment.source, blocks + begin, segment.count * element);
    begin += segment.count * element;
  }
  const Memory memory(blocks, bytes * size());
  exchange(call, RoundsOnly(), &memory);
  std::vector<const void*> sources;
  for (int r = 0; r < size(); ++r)
    sources.push_back(blocks + (r - rank() + size()) % size() * bytes);
  void* const result = blocks;
  if (bytes > 0) reduce_elements(op, dtype, sources, {&result, 1}, 0, bytes / element);
  begin = 0;
  for (const Segment& segment : segments) {
    if (segment.target != nullptr) copy(blocks + begin, segment.target, segment.count * element);
    begin += segment.count * element;
  }
}

void TcpCommunicator::work(const Call& call, const ReduceScatterCall& own) {
  const auto element = static_cast<int64_t>(dtype_size(own.dtype));
  SliceReduction::Plan plan{.op = own.op,
                            .dtype = own.dtype,
                            .boundaries = {0},
                            .wanted_by = SliceReduction::kNobodyElse};
  for (const int64_t count : own.counts) plan.boundaries.push_back(plan.boundaries.back() + count);
  plan.sources.add(own.source, plan.boundaries.back() * element);
  plan.results.add(own.target, own.counts[at(rank())] * element);
  exchange(call, SliceReduction(std::move(plan), rank(), staging_));
}

void TcpCommunicator::work(const Call& call, const BroadcastCall& own) {
  const bool is_root = rank() == own.root;
  const Memory memory(is_root ? own.source : own.target, own.bytes);
  const int place = (rank() - own.root + size()) % size();
  if (size() > 2 && own.bytes > kChainedBroadcast) {
    const auto rank_at = [&](int p) { return (p + own.root) % size(); };
    exchange(call, BroadcastChain(memory, place == 0 ? -1 : rank_at(place - 1),
                                  place + 1 == size() ? -1 : rank_at(place + 1)));
  } else {
    auto out = nothing(), in = nothing();
    if (is_root)
      out.assign(at(size()), {0, own.bytes});
    else
      in[at(own.root)] = {0, own.bytes};
    exchange(call, PartExchange(memory, std::move(out), memory, std::move(in), false));
  }
  if (is_root) copy(own.source, own.target, own.bytes);
}

void TcpCommunicator::work(const Call& call, const AllGatherCall& own) {
  const auto parts = ranges_of(own.bytes);
  const Range& part = parts[at(rank())];
  exchange(call, PartExchange(Memory(own.source, part.bytes()),
                              std::vector<Range>(parts.size(), {0, part.bytes()}),
                              Memory(own.target, parts.back().end), parts, false));
  copy(own.source, plus(own.target, part.begin), part.bytes());
}

void TcpCommunicator::work(const Call& call, const GatherCall& own) {
  const auto parts = ranges_of(own.bytes);
  const Range& part = parts[at(rank())];
  auto out = nothing();
  out[at(own.root)] = {0, part.bytes()};
  const bool is_root = rank() == own.root;
  exchange(call, PartExchange(Memory(own.source, part.bytes()), std::move(out),
                              is_root ? Memory(own.target, parts.back().end) : Memory(),
                              is_root ? parts : nothing(), false));
  if (is_root) copy(own.source, plus(own.target, part.begin), part.bytes());
}

void TcpCommunicator::work(const Call& call, const ScatterCall& own) {
  const auto parts = ranges_of(own.bytes);
  const Range& part = parts[at(rank())];
  auto in = nothing();
  in[at(own.root)] = {0, part.bytes()};
  const bool is_root = rank() == own.root;
  exchange(call, PartExchange(is_root ? Memory(own.source, parts.back().end) : Memory(),
                              is_root ? parts : nothing(), Memory(own.target, part.bytes()),
                              std::move(in), false));
  if (is_root) copy(plus(own.source, part.begin), own.target, part.bytes());
}

void TcpCommunicator::work(const Call& call, const AllToAllCall& own) {
  const auto out = ranges_of(own.send_bytes), in = ranges_of(own.receive_bytes);
  exchange(call, PartExchange(Memory(own.source, out.back().end), out,
                              Memory(own.target, in.back().end), in, true));
  copy(plus(own.source, out[at(rank())].begin), plus(own.target, in[at(rank())].begin),
       out[at(rank())].bytes());
}

// --- How groups form

std::unique_ptr<Communicator> connected(const Members& members, const net::Descriptor& listener,
                                        const TcpOptions& options,
                                        const net::InternetAddress& bound,
                                        const SharedSecurity& security,
                                        const std::function<void()>& check) {
  if (members.endpoints.size() == 1) return std::move(make_in_process_communicators(1)[0]);
  Links links = connect_mesh(members.rank, members.token, listener, members.endpoints,
                             {.security = *security,
                              .job_id = options.job_id,
                              .hosts = members.hosts,
                              .tasks = options.tasks,
                              .silence = options.join_silence,
                              .deadline = Clock::now() + options.join_timeout,
                              .check = check});
  return std::make_unique<TcpCommunicator>(members, std::move(links), options, bound, security);
}

std::unique_ptr<Communicator> TcpCommunicator::split(int color, int key, const TcpOptions& options,
                                                     const std::vector<int>& numbers) {
  // Where a rank listens; or why it cannot, which it does not keep to itself: others would wait.
  struct Offer {
    Token token;
    int64_t code = 0;  // the error's
    char text[256] = {};
    void say(const std::string& said) { said.copy(text, sizeof text); }
    std::string said() const { return {text, strnlen(text, sizeof text)}; }
  };
  const GroupPart part = choose_part(*this, color, key);
  Offer own{.token = random_token()};
  net::Descriptor listener;
  try {
    listener = net::listen_on(bound_);
    own.say(net::InternetAddress::of(listener).text());
  } catch (const Error& error) {
    own.code = static_cast<int64_t>(error.code());
    own.say(error.message());
  }
  const std::vector<Offer> offers = tell_all(*this, "the addresses of a split", own);
  for (int r = 0; r < size(); ++r)
    if (const Offer& offer = offers[at(r)]; offer.code != 0)
      throw Error(code_of(offer.code), str(control_.name(r), ' ', offer.said()), control_.task(r));
  if (part.members.empty()) return nullptr;
  Members members{.rank = part.rank,
                  .endpoints = {},
                  .token = offers[at(part.members[0])].token,
                  .numbers = numbers};
  TcpOptions of_part = options;
  of_part.tasks.clear();
  for (const int r : part.members) {
    members.endpoints.push_back(
        net::InternetAddress::parse(offers[at(r)].said(), "an address of a rank"));
    if (!hosts_.empty()) members.hosts.push_back(hosts_[at(r)]);
    if (!options.tasks.empty()) of_part.tasks.push_back(options.tasks[at(r)]);
  }
  return connected(members, listener, of_part, bound_, security_, [this] {
    control_.read_notices();
    control_.check(std::numeric_limits<uint64_t>::max());
  });
}

TcpCommunicator& known(Communicator& communicator) {
  auto* const tcp = dynamic_cast<TcpCommunicator*>(&communicator);
  if (tcp == nullptr) invalid("a communicator that is used as one over TCP is not one");
  return *tcp;
}

void check_arguments(int rank, int size, const TcpOptions& options) {
  if (size < 1) invalid("a group needs at least 1 rank, got ", size);
  if (rank < 0 || rank >= size)
    invalid("there is no rank ", rank, " in a group of ", size, "; allowed are 0 to ", size - 1);
  if (!options.tasks.empty() && options.tasks.size() != at(size))
    invalid("TcpOptions::tasks names ", options.tasks.size(), " tasks of ", size, " ranks");
}

}  // namespace
}  // namespace tcp

std::unique_ptr<Communicator> make_tcp_communicator(KeyValueStore& store, int rank, int size,
                                                    const TcpOptions& given) {
  using namespace tcp;
  TcpOptions options = given;
  options.timeout = clamped(options.timeout);
  options.join_timeout = clamped(options.join_timeout);
  options.check_payloads |= payload_checks_asked_for(process_environment);
  check_arguments(rank, size, options);
  const auto deadline = Clock::now() + options.join_timeout;
  const auto security = std::make_shared<const coordination::Security>(
      options.tls, options.allow_plaintext, process_environment);
  const OwnListener own = listen_for_others(store, rank, options, *security, deadline);
  const Joining joining(store, rank, size, options, *security, deadline);
  joining.announce(own.socket);
  auto communicator = connected(joining.members(), own.socket, options, own.address.with_port(0),
                                security, [&store] { store.check(); });
  joining.forget();
  return communicator;
}

std::unique_ptr<Communicator> split_tcp_communicator(Communicator& whole, int color, int key,
                                                     std::chrono::milliseconds timeout,
                                                     const std::vector<int>& numbers) {
  tcp::TcpCommunicator& own = tcp::known(whole);
  TcpOptions options = own.options();
  options.timeout = timeout;
  return own.split(color, key, options, numbers);
}

void run_tcp_collective(Communicator& group, const Call& call, uint64_t number, const Call* whole) {
  tcp::known(group).run(call, number, whole);
}

TcpRankName tcp_rank_name(Communicator& group, int rank) { return tcp::known(group).name_of(rank); }

}  // namespace cohort
