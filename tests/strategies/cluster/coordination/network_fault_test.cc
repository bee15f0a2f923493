#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/random.h"
#include "strategies/cluster/torchrun_resolver.h"
#include "tests/strategies/cluster/coordination/job.h"
#include "tests/testing/certificates.h"
#include "tests/testing/tcp_fault_proxy.h"
#include "tests/testing/trials.h"

// Members whose connection to the leader fails: right values, or one failure that all know of.
namespace cohort::testing {
namespace {

using ::testing::AnyOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Not;
using Kind = NetworkFault::Kind;
using Direction = NetworkFault::Direction;

constexpr int kSize = 3;
constexpr int kFar = 2;  // reaches the leader through the proxy
constexpr Direction kDirections[] = {Direction::kToServer, Direction::kToClient};
// A job whose members are told that one has failed: what makes it dead, and turns on a busy
// machine.
constexpr seconds kBound(20);
// Wrong values are an error that nothing else gives.
constexpr char kWrong[] = "a wrong value";

class FaultyJob {
 public:
  explicit FaultyJob(const TlsFiles& tls = {}, milliseconds join_timeout = seconds(20))
      : tls_(tls), join_timeout_(join_timeout) {}

  TcpFaultProxy& proxy() { return proxy_; }

  // Every task joins, does `body`, and keeps its membership until all are done.
  void run(const std::function<void(Membership&)>& body) {
    const auto began = std::chrono::steady_clock::now();
    Members members(kSize);
    errors_ = on_threads(kSize, [&](int rank) {
      members[rank] = join(resolver(rank), {.join_timeout = join_timeout_,
                                            .heartbeat = milliseconds(100),
                                            .suspect_after = milliseconds(700),
                                            .dead_after = milliseconds(2000),
                                            .tls = tls_,
                                            .notice = [](const std::string&) {}});
      body(*members[rank]);
    });
    EXPECT_LT(std::chrono::steady_clock::now() - began, kBound);
  }
  const std::vector<std::string>& errors() const { return errors_; }

  void expect_fine() const { EXPECT_THAT(errors_, Each("")); }
  // Every task has an error that names who is cut off; that one may also name the leader.
  void expect_failure() const {
    for (int rank = 0; rank < kSize; ++rank)
      EXPECT_THAT(errors_[rank],
                  AnyOf(HasSubstr("worker:2"), HasSubstr(rank == kFar ? "worker:0" : "worker:2")))
          << rank;
  }

 private:
  TorchrunResolver resolver(int rank) {
    const net::InternetAddress proxy = proxy_.endpoint();
    return TorchrunResolver(
        environment({{"RANK", std::to_string(rank)},
                     {"WORLD_SIZE", std::to_string(kSize)},
                     {"MASTER_ADDR", "127.0.0.1"},
                     {"MASTER_PORT", std::to_string(rank == kFar ? proxy.port() : job_.port(0))}}));
  }

  const TlsFiles tls_;
  const milliseconds join_timeout_;
  LocalJob job_{1};
  TcpFaultProxy proxy_{net::InternetAddress::parse(job_.address(0), "the leader")};
  std::vector<std::string> errors_;
};

// Values that all tell each other, and barriers.
void rounds_of_calls(Membership& member) {
  const auto value = [](int rank, int round) {
    return std::string(200, static_cast<char>('a' + rank)) + std::to_string(round);
  };
  for (int round = 0; round < 15; ++round) {
    const auto key = [&](int rank) { return str(rank, "/", round); };
    member.store().set(key(member.rank()), value(member.rank(), round));
    for (int rank = 0; rank < member.size(); ++rank)
      if (member.store().get(key(rank), seconds(5)) != value(rank, round))
        fail(Code::kInternal, kWrong);
    member.barrier("round", seconds(5));
  }
}

TEST(CoordinationFaults, ShortDelaysChangeNothing) {
  FaultyJob job;
  for (const Direction direction : kDirections)
    for (const int64_t after : {0, 300, 1000, 2000, 4000})
      job.proxy().add({.kind = Kind::kDelay,
                       .direction = direction,
                       .after = after,
                       .delay = milliseconds(200)});
  job.run(rounds_of_calls);
  job.expect_fine();
  EXPECT_TRUE(job.proxy().is_over());
}

TEST(CoordinationFaults, ABrokenConnectionIsAFailureThatAllKnowOf) {
  for (const Kind kind : {Kind::kReset, Kind::kClose, Kind::kHalfClose, Kind::kStall})
    for (const Direction direction : kDirections) {
      SCOPED_TRACE(
          str("kind ", static_cast<int>(kind), " direction ", static_cast<int>(direction)));
      FaultyJob job;
      job.run([&](Membership& member) {
        member.barrier("joined", kPlenty);
        if (member.rank() == kFar) job.proxy().add({.kind = kind, .direction = direction});
        member.barrier("never", kPlenty);
        member.barrier("never again", kPlenty);
        // Of the far one's last words some may still have come.
        EXPECT_TRUE(eventually([&] { return member.failure().has_value(); }));
        throw *member.failure();
      });
      job.expect_failure();
    }
}

TEST(CoordinationFaults, ATaskWhoseConnectionBreaksWhileItJoinsTriesAgain) {
  const auto [seed, count] = trials(4711, 1);
  RandomStream random(seed);
  for (uint64_t i = 0; i < count; ++i)
    for (const Kind kind : {Kind::kReset, Kind::kClose, Kind::kHalfClose})
      for (const Direction direction : kDirections) {
        const auto after = static_cast<int64_t>(random.below(200));
        SCOPED_TRACE(str("kind ", static_cast<int>(kind), " direction ",
                         static_cast<int>(direction), " after ", after));
        FaultyJob job({}, seconds(5));
        job.proxy().add({.kind = kind, .direction = direction, .after = after});
        job.run(rounds_of_calls);
        EXPECT_TRUE(job.proxy().is_over());
        // One who had joined all but for knowing it is gone.
        if (job.errors()[0].empty())
          job.expect_fine();
        else
          job.expect_failure();
      }
}

TEST(CoordinationFaults, AStalledTaskIsNamedWhenItDoesNotJoin) {
  FaultyJob job({}, seconds(2));
  job.proxy().add({.kind = Kind::kStall});
  job.run([](Membership&) {});
  job.expect_failure();
}

// Without encryption there is no check but that of TCP; what must not happen is a crash or a hang.
TEST(CoordinationFaults, AFlippedBitIsNeverAWrongValueWhereThereIsEncryption) {
  const auto [seed, count] = trials(1234, 6);
  RandomStream random(seed);
  const Certificates certificates;
  for (const bool encrypted : {true, false})
    for (uint64_t i = 0; i < count; ++i) {
      const NetworkFault fault{.kind = Kind::kFlip,
                               .direction = kDirections[random.below(2)],
                               .after = static_cast<int64_t>(random.below(8000)),
                               .bit = static_cast<int>(random.below(8))};
      SCOPED_TRACE(str("bit ", fault.bit, " of byte ", fault.after));
      FaultyJob job(encrypted ? certificates.files() : TlsFiles{}, seconds(5));
      job.proxy().add(fault);
      job.run(rounds_of_calls);
      if (!encrypted) continue;
      EXPECT_THAT(job.errors(), Each(Not(HasSubstr(kWrong))));
      if (!job.errors()[0].empty()) job.expect_failure();
    }
}

}  // namespace
}  // namespace cohort::testing
