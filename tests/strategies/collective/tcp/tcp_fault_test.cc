// Groups whose network fails: right numbers, or an error on every rank in time; nothing else.
#include <future>
#include <mutex>
#include <optional>
#include <thread>

#include "core/base/random.h"
#include "strategies/cluster/coordination/in_memory_store.h"
#include "strategies/collective/tcp/frame.h"
#include "tests/strategies/collective/tcp/tcp_group.h"
#include "tests/testing/certificates.h"
#include "tests/testing/tcp_fault_proxy.h"
#include "tests/testing/trials.h"

namespace cohort::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Kind = NetworkFault::Kind;
using Direction = NetworkFault::Direction;

constexpr int kSize = 3;
// The ends of the connections that fail; `kCaller` connects to `kCalled`.
constexpr int kCalled = 0, kCaller = 2;
constexpr milliseconds kTimeout(1000);  // of a call
// For every rank to know: a call's limit, what ranks then wait for each other's word, and turns on
// a busy machine.
constexpr seconds kBound(10);
// Bytes of the greeting at the beginning of each connection, and of a frame's header.
constexpr int64_t kGreeting = sizeof(tcp::Hello), kHeader = sizeof(tcp::FrameHeader);

// The connections between two ranks, in the order in which they are made.
constexpr int kCollectives = 0, kMessages = 1, kControl = 2;

// The store as seen by kCaller: it finds a proxy at the address of kCalled.
class MisleadingStore : public KeyValueStore {
 public:
  MisleadingStore(KeyValueStore& store, std::vector<NetworkFault> faults)
      : store_(store), faults_(std::move(faults)) {}

  void set(std::string_view key, std::string_view value) override { store_.set(key, value); }
  std::optional<std::string> find(std::string_view key) override { return store_.find(key); }
  int64_t add(std::string_view key, int64_t amount) override { return store_.add(key, amount); }
  bool compare_set(std::string_view key, std::optional<std::string_view> expected,
                   std::string_view value) override {
    return store_.compare_set(key, expected, value);
  }
  void erase(std::string_view key) override { store_.erase(key); }
  std::string get(std::string_view key, milliseconds timeout) override {
    std::string value = store_.get(key, timeout);
    if (key != str("tcp/group/", kCalled)) return value;
    proxy_.emplace(net::InternetAddress::parse(value, "the address of a rank"), faults_);
    return proxy_->endpoint().text();
  }
  TcpFaultProxy& proxy() { return *proxy_; }

 private:
  KeyValueStore& store_;
  const std::vector<NetworkFault> faults_;
  std::optional<TcpFaultProxy> proxy_;
};

// A group of kSize ranks, of which two are connected through a proxy.
class FaultyGroup {
 public:
  explicit FaultyGroup(std::vector<NetworkFault> faults, TcpOptions options = {})
      : misleading_(store_, std::move(faults)), ranks_(kSize), errors_(kSize) {
    if (options.timeout == TcpOptions().timeout) options.timeout = kTimeout;
    if (options.join_timeout > seconds(30)) options.join_timeout = seconds(30);
    on_threads([&](int rank) {
      KeyValueStore& store = rank == kCaller ? static_cast<KeyValueStore&>(misleading_) : store_;
      ranks_[static_cast<size_t>(rank)] = make_tcp_communicator(store, rank, kSize, options);
    });
  }

  TcpFaultProxy& proxy() { return misleading_.proxy(); }

  // Each rank works on a thread of its own until it is done, or has an error; then it leaves.
  void work(const std::function<void(Communicator&)>& body) {
    const auto began = tcp::Clock::now();
    on_threads([&](int rank) {
      if (auto& communicator = ranks_[static_cast<size_t>(rank)]) body(*communicator);
    });
    EXPECT_LT(tcp::Clock::now() - began, kBound);
    on_threads([&](int rank) { ranks_[static_cast<size_t>(rank)].reset(); });
  }

  const std::vector<std::optional<Error>>& errors() const { return errors_; }
  std::string text() const {
    std::string text;
    for (int r = 0; r < kSize; ++r)
      text +=
          str("\n  rank ", r, ": ",
              errors_[static_cast<size_t>(r)] ? errors_[static_cast<size_t>(r)]->what() : "fine");
    return text;
  }

  void expect_fine() const {
    for (const auto& error : errors_) EXPECT_FALSE(error) << text();
  }
  // Every rank has an error, which names one of the ends of what has failed.
  void expect_errors(const std::vector<Code>& codes) const {
    for (const auto& error : errors_) {
      ASSERT_TRUE(error) << text();
      EXPECT_NE(std::find(codes.begin(), codes.end(), error->code()), codes.end()) << text();
      const std::string what = error->what();
      EXPECT_TRUE(what.find(str("rank ", kCalled, " at 127.0.0.1:")) != std::string::npos ||
                  what.find(str("rank ", kCaller, " at 127.0.0.1:")) != std::string::npos)
          << text();
    }
  }

 private:
  void on_threads(const std::function<void(int)>& body) {
    std::vector<std::thread> threads;
    for (int rank = 0; rank < kSize; ++rank)
      threads.emplace_back([&, rank] {
        try {
          body(rank);
        } catch (const Error& error) {
          auto& known = errors_[static_cast<size_t>(rank)];
          if (!known) known = error;
        }
      });
    for (auto& thread : threads) thread.join();
  }

  InMemoryStore store_;
  MisleadingStore misleading_;
  Group ranks_;
  std::vector<std::optional<Error>> errors_;
};

// Wrong numbers are an error of a code that nothing else has.
constexpr Code kWrongNumber = Code::kInternal;

// Some rounds of everything that uses the network: large and small reductions, messages, a barrier.
void rounds_of_calls(Communicator& c) {
  constexpr int kRounds = 4;
  for (int round = 0; round < kRounds; ++round) {
    for (const int64_t count : {int64_t{5}, int64_t{60'000}}) {
      std::vector<float> values(static_cast<size_t>(count));
      for (size_t i = 0; i < values.size(); ++i)
        values[i] = static_cast<float>((i + static_cast<size_t>(round)) % 1000 * (c.rank() + 1u));
      const Segment segment{values.data(), values.data(), count};
      c.all_reduce({&segment, 1}, DType::kFloat32, ReduceOp::kSum);
      for (size_t i = 0; i < values.size(); ++i)
        if (values[i] != static_cast<float>((i + static_cast<size_t>(round)) % 1000 * 6))
          fail(kWrongNumber, "round ", round, ": element ", i, " of ", count, " is ", values[i]);
    }
    const std::vector<int64_t> sent(20'000, c.rank() + round);
    const auto bytes = static_cast<int64_t>(sent.size() * sizeof(int64_t));
    std::vector<int64_t> sends;
    std::optional<int> wrong;
    for (int peer = 0; peer < c.size(); ++peer)
      if (peer != c.rank()) sends.push_back(c.start_send({sent.data(), bytes, peer, round}));
    for (int peer = 0; peer < c.size(); ++peer) {
      if (peer == c.rank()) continue;
      std::vector<int64_t> got(sent.size());
      c.receive(got.data(), bytes, peer, round);
      if (got != std::vector<int64_t>(got.size(), peer + round)) wrong = peer;
    }
    for (const int64_t send : sends) c.wait(send);  // before an error frees what is being sent
    if (wrong) fail(kWrongNumber, "round ", round, ": a message of rank ", *wrong);
    c.barrier();
  }
}

void expect_no_wrong_numbers(const FaultyGroup& group) {
  for (const auto& error : group.errors())
    EXPECT_FALSE(error && error->code() == kWrongNumber) << group.text();
}

const char* name_of(Direction direction) {
  return direction == Direction::kToServer ? "to rank 0" : "to rank 2";
}

constexpr Direction kDirections[] = {Direction::kToServer, Direction::kToClient};

TEST(TcpFaults, ShortDelaysChangeNothing) {
  std::vector<NetworkFault> delays;
  for (const Direction direction : kDirections)
    for (const int connection : {kCollectives, kMessages})
      for (const int64_t after : {int64_t{0}, kGreeting, kGreeting + 20, int64_t{100'000}})
        delays.push_back({.kind = Kind::kDelay,
                          .direction = direction,
                          .after = after,
                          .connection = connection,
                          .delay = milliseconds(150)});
  FaultyGroup group(delays);
  group.work(rounds_of_calls);
  group.expect_fine();
  EXPECT_TRUE(group.proxy().is_over());
}

// A connection that ends, in whatever way, between frames, within a header or within a payload.
TEST(TcpFaults, ABrokenConnectionIsAnErrorOnAllRanks) {
  for (const Kind kind : {Kind::kReset, Kind::kClose, Kind::kHalfClose})
    for (const int connection : {kCollectives, kMessages})
      for (const Direction direction : kDirections)
        for (const int64_t after : {kGreeting + 1, kGreeting + 30, int64_t{70'001}}) {
          SCOPED_TRACE(str("kind ", static_cast<int>(kind), " on connection ", connection, ' ',
                           name_of(direction), " after ", after));
          FaultyGroup group({{kind, direction, after, connection}});
          group.work(rounds_of_calls);
          EXPECT_TRUE(group.proxy().is_over());
          group.expect_errors({Code::kUnavailable});
        }
}

TEST(TcpFaults, ABrokenControlConnectionIsAnErrorOnAllRanks) {
  for (const Kind kind : {Kind::kReset, Kind::kClose, Kind::kHalfClose}) {
    SCOPED_TRACE(static_cast<int>(kind));
    FaultyGroup group({{kind, Direction::kToClient, kGreeting, kControl}});
    group.work([](Communicator& c) {
      while (true) c.barrier();
    });
    EXPECT_TRUE(group.proxy().is_over());
    group.expect_errors({Code::kUnavailable});
  }
}

// Neither end is told, and the proxy's host still answers: only the limit of the call helps.
TEST(TcpFaults, AStallIsAnErrorOnAllRanksWhenTheCallsLimitIsOver) {
  for (const int connection : {kCollectives, kMessages})
    for (const Direction direction : kDirections) {
      SCOPED_TRACE(str("connection ", connection, ' ', name_of(direction)));
      FaultyGroup group({{Kind::kStall, direction, 50'000, connection}});
      group.work(rounds_of_calls);
      group.expect_errors({Code::kDeadlineExceeded});
    }
}

// Rank 2 waits for what rank 0 has sent; rank 0 waits in the next call, to which rank 1 comes when
// it has been said to be missing.
TEST(TcpFaults, WhoWaitsOneCallBeforeOrAfterIsNotMissing) {
  std::once_flag once;
  std::promise<std::string> warning;
  const auto warned = warning.get_future().share();
  const auto notice = [&](const std::string& line) {
    std::call_once(once, [&] { warning.set_value(line); });
  };
  // Past the news of the call, within its data.
  const int64_t in_data = kGreeting + 2 * kHeader + 1;
  FaultyGroup group({{Kind::kStall, Direction::kToClient, in_data, kCollectives}},
                    {.timeout = seconds(3), .stall = {milliseconds(300), notice}});
  group.work([&](Communicator& c) {
    std::vector<char> data(1000);
    c.broadcast(data.data(), data.data(), std::ssize(data), kCalled);
    if (c.rank() == 1) {
      EXPECT_EQ(warned.wait_for(kBound), std::future_status::ready);
    }
    c.barrier();
  });
  ASSERT_EQ(warned.wait_for(seconds(0)), std::future_status::ready);
  const std::string line = warned.get();
  EXPECT_EQ(line.find("warning: rank 0 at "), 0u) << line;
  EXPECT_NE(line.find(" in a barrier for rank 1 at "), std::string::npos) << line;
  EXPECT_EQ(line.find("rank 2"), std::string::npos) << line;
  group.expect_errors({Code::kDeadlineExceeded});
  for (const auto& error : group.errors()) {
    ASSERT_TRUE(error) << group.text();
    for (const char* part :
         {"rank 2 at ", " in a broadcast of 1000 bytes from rank 0 for rank 0 at ",
          ", whose data did not come"})
      EXPECT_NE(error->message().find(part), std::string::npos) << group.text();
  }
}

TEST(TcpFaults, ABrokenConnectionIsNamedByItsTask) {
  FaultyGroup group({{Kind::kReset, Direction::kToServer, 70'001, kCollectives}},
                    {.tasks = {"worker:0", "chief:0", "worker:1"}});
  group.work(rounds_of_calls);
  for (const auto& error : group.errors()) {
    ASSERT_TRUE(error) << group.text();
    const bool far = error->peer() == "worker:1";
    EXPECT_TRUE(far || error->peer() == "worker:0") << group.text();
    EXPECT_NE(error->message().find(far ? "worker:1 (rank 2) at 127.0.0.1:"
                                        : "worker:0 (rank 0) at 127.0.0.1:"),
              std::string::npos)
        << group.text();
  }
}

// As when a host is cut off while its data are on their way: all have joined, and it never ends.
TEST(TcpFaults, AnAbortedCallWhoseDataDoNotComeEnds) {
  FaultyGroup group({{Kind::kStall, Direction::kToServer, 3'000'000, kCollectives}},
                    {.timeout = 2 * kBound});
  group.work([&](Communicator& c) {
    std::vector<float> values(2'000'000, 1);
    const Segment segment{values.data(), values.data(), 2'000'000};
    std::thread aborting([&] {
      while (!group.proxy().is_over()) std::this_thread::sleep_for(milliseconds(10));
      std::this_thread::sleep_for(milliseconds(300));  // until nothing moves
      c.abort(Error(Code::kCancelled, "rank 2 is lost"));
    });
    try {
      while (true) c.all_reduce({&segment, 1}, DType::kFloat32, ReduceOp::kSum);
    } catch (const Error&) {
      aborting.join();
      throw;
    }
  });
  for (const auto& error : group.errors()) {
    ASSERT_TRUE(error);
    EXPECT_EQ(error->code(), Code::kCancelled) << group.text();
  }
}

TEST(TcpFaults, AFlippedBitInAHeaderIsAnErrorOnAllRanks) {
  for (const bool check_payloads : {false, true})
    for (const int connection : {kCollectives, kMessages})
      for (const Direction direction : kDirections)
        for (int64_t byte = 0; byte < kHeader; byte += 5) {
          SCOPED_TRACE(str("byte ", byte, " of a header on connection ", connection, ' ',
                           name_of(direction)));
          FaultyGroup group({{.kind = Kind::kFlip,
                              .direction = direction,
                              .after = kGreeting + byte,
                              .connection = connection,
                              .bit = static_cast<int>(byte % 8)}},
                            {.check_payloads = check_payloads});
          group.work(rounds_of_calls);
          group.expect_errors({Code::kDataLoss});
        }
}

// With checks. Without them, a wrong number is the only harm.
TEST(TcpFaults, AFlippedBitAnywhereIsNeverAWrongNumberWhereThereAreChecks) {
  const auto [seed, count] = trials(20'240'607, 24);
  RandomStream random(seed);
  for (const bool check_payloads : {true, false})
    for (uint64_t i = 0; i < count; ++i) {
      const NetworkFault fault{.kind = Kind::kFlip,
                               .direction = kDirections[random.below(2)],
                               .after = kGreeting + static_cast<int64_t>(random.below(400'000)),
                               .connection = static_cast<int>(random.below(2)),
                               .bit = static_cast<int>(random.below(8))};
      SCOPED_TRACE(str("bit ", fault.bit, " of byte ", fault.after, " on connection ",
                       fault.connection, ' ', name_of(fault.direction)));
      FaultyGroup group({fault}, {.check_payloads = check_payloads});
      group.work(rounds_of_calls);
      if (!check_payloads) continue;
      expect_no_wrong_numbers(group);
      if (group.proxy().is_over())
        group.expect_errors({Code::kDataLoss});
      else
        group.expect_fine();
    }
}

TEST(TcpFaults, TheEnvironmentCanAskForChecks) {
  setenv("COHORT_TCP_CHECK_PAYLOADS", "1", 1);
  for (const int connection : {kCollectives, kMessages}) {
    // Within the payload of a large frame.
    FaultyGroup group({{.kind = Kind::kFlip,
                        .direction = Direction::kToClient,
                        .after = 100'000,
                        .connection = connection,
                        .bit = 3}},
                      {.tasks = {"chief:0", "worker:0", "worker:1"}});
    group.work(rounds_of_calls);
    for (const auto& error : group.errors()) {
      ASSERT_TRUE(error) << group.text();
      EXPECT_EQ(error->code(), Code::kDataLoss) << group.text();
      EXPECT_EQ(error->peer(), "chief:0") << group.text();
    }
  }
  setenv("COHORT_TCP_CHECK_PAYLOADS", "yes", 1);
  InMemoryStore store;
  EXPECT_EQ(error_of([&] { make_tcp_communicator(store, 0, 1); }).code(), Code::kInvalidArgument);
  unsetenv("COHORT_TCP_CHECK_PAYLOADS");
}

// TLS finds every one, without checks of our own.
TEST(TcpFaults, AFlippedBitAnywhereIsAnErrorOnAllRanksOverTls) {
  const Certificates certificates;
  const auto [seed, count] = trials(20'261'121, 12);
  RandomStream random(seed);
  constexpr int64_t kHandshake = 4000;  // more than each end sends in it
  for (uint64_t i = 0; i < count; ++i) {
    const NetworkFault fault{.kind = Kind::kFlip,
                             .direction = kDirections[random.below(2)],
                             .after = kHandshake + static_cast<int64_t>(random.below(200'000)),
                             .connection = static_cast<int>(random.below(2)),
                             .bit = static_cast<int>(random.below(8))};
    SCOPED_TRACE(str("bit ", fault.bit, " of byte ", fault.after, " on connection ",
                     fault.connection, ' ', name_of(fault.direction)));
    FaultyGroup group({fault}, {.tls = certificates.files()});
    group.work(rounds_of_calls);
    expect_no_wrong_numbers(group);
    EXPECT_TRUE(group.proxy().is_over());
    // A length that is another one may be one that never comes.
    group.expect_errors({Code::kDataLoss, Code::kUnavailable, Code::kDeadlineExceeded});
  }
}

// A job that has failed: a rank is gone before all are connected.
class FailingStore : public InMemoryStore {
 public:
  void check() const override {
    if (++checks_ > 20) fail(Code::kUnavailable, "worker:1 is gone");
  }

 private:
  mutable int checks_ = 0;
};

TEST(TcpFaults, NobodyWaitsForTheGroupOfAJobThatHasFailed) {
  FailingStore store;
  store.set("tcp/group/1", "127.0.0.1:9");  // never calls
  const auto began = tcp::Clock::now();
  EXPECT_EQ(error_of([&] { make_tcp_communicator(store, 0, 2, {}); }).message(),
            "worker:1 is gone");
  EXPECT_LT(tcp::Clock::now() - began, kBound);
}

// Whatever happens to the greetings, the group forms or says who is missing.
TEST(TcpFaults, AFaultWhileTheGroupFormsIsOvercomeOrNamed) {
  for (const Kind kind : {Kind::kReset, Kind::kClose, Kind::kHalfClose, Kind::kFlip, Kind::kDelay})
    for (const Direction direction : kDirections)
      for (const int64_t after : {int64_t{0}, int64_t{30}, kGreeting - 1}) {
        SCOPED_TRACE(
            str("kind ", static_cast<int>(kind), ' ', name_of(direction), " after ", after));
        FaultyGroup group({{.kind = kind,
                            .direction = direction,
                            .after = after,
                            .connection = kCollectives,
                            .delay = milliseconds(100)}},
                          {.join_timeout = seconds(2)});
        group.work(rounds_of_calls);
        if (group.errors()[kCaller])
          group.expect_errors({Code::kUnavailable});
        else
          group.expect_fine();
      }
}

}  // namespace
}  // namespace cohort::testing
