// Ranks that talk over TLS, and others that should not take part.
#include <cstdlib>
#include <cstring>
#include <future>
#include <poll.h>
#include <random>
#include <sstream>
#include <thread>

#include <gmock/gmock.h>

#include "core/collective/split.h"
#include "strategies/cluster/coordination/in_memory_store.h"
#include "strategies/cluster/environment.h"
#include "strategies/cluster/net/socket.h"
#include "strategies/collective/tcp/frame.h"
#include "tests/strategies/collective/tcp/tcp_group.h"
#include "tests/testing/certificates.h"

namespace cohort::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr seconds kPlenty(20);
// Of a rank that waits for others who will not come.
constexpr milliseconds kShort(1500);

class TcpTlsTest : public ::testing::Test {
 protected:
  TcpOptions options(const std::string& name = "task", const std::string& ca = "ca") const {
    return {.tls = certificates_.files(name, ca), .join_timeout = kShort};
  }
  // A certificate for these names alone.
  TcpOptions signed_for(const std::string& name, const std::string& names) const {
    certificates_.sign(name, names);
    TcpOptions made = options(name);
    made.tasks = {"worker:0", "worker:1"};
    made.job_id = "red";
    return made;
  }

  // What becomes of ranks with these options; "" when they have met. Rank 1 calls rank 0.
  static std::vector<std::string> meet(const std::vector<TcpOptions>& options) {
    InMemoryStore store;
    const auto size = static_cast<int>(options.size());
    std::vector<std::string> errors(options.size());
    std::vector<std::thread> threads;
    for (int rank = 0; rank < size; ++rank)
      threads.emplace_back([&, rank] {
        const auto r = static_cast<size_t>(rank);
        try {
          make_tcp_communicator(store, rank, size, options[r])->barrier();
        } catch (const Error& error) {
          errors[r] = error.what();
        }
      });
    for (auto& thread : threads) thread.join();
    return errors;
  }

  const Certificates certificates_;
};

std::vector<float> sum_over(const Group& group) {
  constexpr int64_t kCount = 100'003;
  std::vector<float> sum(kCount);
  on_ranks(group, [&](int rank, Communicator& communicator) {
    std::mt19937 random(static_cast<unsigned>(rank));
    std::vector<float> values(kCount);
    for (float& value : values) value = std::normal_distribution<float>()(random);
    const Segment segment{values.data(), values.data(), kCount};
    communicator.all_reduce({&segment, 1}, DType::kFloat32, ReduceOp::kSum);
    if (rank == 0) sum = values;
  });
  return sum;
}

TEST_F(TcpTlsTest, SumsHaveTheBitsThatTheyHaveInPlainText) {
  const auto plain = sum_over(make_tcp_group(3));
  const auto encrypted = sum_over(make_tcp_group(3, {.tls = certificates_.files()}));
  EXPECT_EQ(std::memcmp(plain.data(), encrypted.data(), plain.size() * sizeof(float)), 0);
}

TEST_F(TcpTlsTest, PartsOfAGroupAreEncryptedToo) {
  on_ranks(make_tcp_group(4, {.tls = certificates_.files()}), [](int rank, Communicator& whole) {
    const auto part = whole.split(rank % 2, rank);
    int64_t value = rank;
    const Segment segment{&value, &value, 1};
    part->all_reduce({&segment, 1}, DType::kInt64, ReduceOp::kSum);
    EXPECT_EQ(value, rank % 2 == 0 ? 2 : 4);
  });
}

TEST_F(TcpTlsTest, ARankOfAnotherAuthorityIsNamedAtBothEnds) {
  certificates_.sign("stranger", Certificates::kNames, "other-ca");
  auto errors = meet({options(), options("stranger", "both-cas")});
  EXPECT_THAT(errors[1], AllOf(HasSubstr("PERMISSION_DENIED: rank 0 at 127.0.0.1:"),
                               HasSubstr("does not know the authority of this end's certificate")));
  EXPECT_THAT(errors[0], AllOf(HasSubstr("to be connected with rank 1 at 127.0.0.1:"),
                               HasSubstr("shows a certificate that is signed by an unknown")));
  errors = meet({options("stranger", "both-cas"), options()});
  EXPECT_THAT(errors[1],
              AllOf(HasSubstr("PERMISSION_DENIED: rank 0 at 127.0.0.1:"),
                    HasSubstr("shows a certificate that is signed by an unknown authority")));
  EXPECT_THAT(errors[0], HasSubstr("does not know the authority of this end's certificate"));
}

TEST_F(TcpTlsTest, ARankOfAnotherNameIsRefused) {
  TcpOptions other = options();
  other.tls.leader_name = "somebody.example";
  EXPECT_THAT(meet({options(), other})[1],
              AllOf(HasSubstr("PERMISSION_DENIED: rank 0 at 127.0.0.1:"),
                    HasSubstr("does not carry the name somebody.example")));
  certificates_.sign("elsewhere", "IP:10.0.0.1,DNS:elsewhere.example");
  EXPECT_THAT(meet({options("elsewhere"), options()})[1],
              HasSubstr("does not carry the name 127.0.0.1"));
}

TEST_F(TcpTlsTest, ARankIsWhatItsCertificateSays) {
  const TcpOptions first = signed_for("first", "URI:cohort://*/worker/0");
  const TcpOptions second = signed_for("second", "URI:cohort://red/worker/1");
  EXPECT_THAT(meet({first, second}), ::testing::Each(""));
  for (const char* uri : {"cohort://*/worker/2", "cohort://blue/worker/1", "cohort://*/ps/1"}) {
    const TcpOptions wrong = signed_for("wrong", str(Certificates::kNames, ",URI:", uri));
    const auto errors = meet({first, wrong});
    EXPECT_THAT(errors[1], AllOf(HasSubstr("PERMISSION_DENIED: rank 0 at 127.0.0.1:"),
                                 HasSubstr("not for worker:1 of job \"red\"")));
    EXPECT_THAT(errors[0], AllOf(HasSubstr("worker:1 (rank 1) at 127.0.0.1:"), HasSubstr(uri)));
  }
  const TcpOptions wrong = signed_for("wrong", "IP:127.0.0.1,URI:cohort://*/worker/1");
  EXPECT_THAT(meet({wrong, second})[1],
              AllOf(HasSubstr("PERMISSION_DENIED: rank 0 at 127.0.0.1:"),
                    HasSubstr("worker:0 of job \"red\""), HasSubstr("cohort://*/worker/1")));
}

TEST_F(TcpTlsTest, ACertificateThatNamesATaskMayBeRequired) {
  setenv("COHORT_TLS_REQUIRE_TASK", "1", 1);
  const TcpOptions first = signed_for("first", "URI:cohort://*/worker/0");
  const TcpOptions second = signed_for("second", "URI:cohort://*/worker/1");
  TcpOptions unnamed = options();
  unnamed.tasks = first.tasks;
  const auto good = meet({first, second}), bad = meet({first, unnamed}),
             worse = meet({unnamed, second});
  unsetenv("COHORT_TLS_REQUIRE_TASK");
  EXPECT_THAT(good, ::testing::Each(""));
  EXPECT_THAT(bad[0], HasSubstr("COHORT_TLS_REQUIRE_TASK"));
  EXPECT_THAT(bad[1], HasSubstr("PERMISSION_DENIED: rank 0 at 127.0.0.1:"));
  EXPECT_THAT(worse[1], AllOf(HasSubstr("PERMISSION_DENIED: rank 0 at 127.0.0.1:"),
                              HasSubstr("COHORT_TLS_REQUIRE_TASK")));
}

TEST_F(TcpTlsTest, RanksWithAndWithoutCertificatesDoNotMeet) {
  const TcpOptions plain{.join_timeout = kShort};
  EXPECT_THAT(meet({options(), plain})[1],
              AllOf(HasSubstr("FAILED_PRECONDITION: rank 1 has no certificates"),
                    HasSubstr("COHORT_TLS_CERT")));
  EXPECT_THAT(meet({plain, options()})[1],
              HasSubstr("FAILED_PRECONDITION: rank 1 has certificates and rank 0 has none"));
}

TEST_F(TcpTlsTest, CertificatesMayComeFromTheEnvironment) {
  const TlsFiles files = certificates_.files("task", "other-ca");
  setenv("COHORT_TLS_CERT", files.certificate.c_str(), 1);
  setenv("COHORT_TLS_KEY", files.key.c_str(), 1);
  setenv("COHORT_TLS_CA", files.authority.c_str(), 1);
  const auto errors = meet({{.join_timeout = kShort}, {.join_timeout = kShort}});
  for (const char* name : {"COHORT_TLS_CERT", "COHORT_TLS_KEY", "COHORT_TLS_CA"}) unsetenv(name);
  EXPECT_THAT(errors[1], HasSubstr(str("is not signed by an authority in ", files.authority,
                                       " (COHORT_TLS_CA)")));
}

// Whoever else calls the port of a rank while its group forms.
TEST_F(TcpTlsTest, StrangersDoNotDisturbAGroupThatForms) {
  InMemoryStore store;
  Group group(2);
  const TcpOptions own{.tls = certificates_.files()};
  std::thread first([&] { group[0] = make_tcp_communicator(store, 0, 2, own); });
  const auto endpoint =
      net::InternetAddress::parse(store.get("tcp/group/0", kPlenty), "the address of rank 0");
  std::vector<net::Descriptor> strangers;
  for (int i = 0; i < 100; ++i) {
    strangers.push_back(net::start_connecting(endpoint));
    pollfd polled{strangers.back().get(), POLLOUT, 0};
    ASSERT_EQ(poll(&polled, 1, 10'000), 1);
    tcp::Hello hello{.size = 2, .from = 1, .to = 0};
    seal(hello);
    const std::string begun("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 11);
    // Nothing, plain text, the beginning of a handshake, a wrong one.
    if (i % 4 == 1) send(strangers.back().get(), &hello, sizeof hello, MSG_NOSIGNAL);
    if (i % 4 == 2) send(strangers.back().get(), begun.data(), begun.size(), MSG_NOSIGNAL);
    const std::string wrong = begun + std::string(600, static_cast<char>(i));
    if (i % 4 == 3) send(strangers.back().get(), wrong.data(), wrong.size(), MSG_NOSIGNAL);
  }
  group[1] = make_tcp_communicator(store, 1, 2, own);
  first.join();
  on_ranks(group, [](int /*rank*/, Communicator& communicator) { communicator.barrier(); });
}

// Rank 1, which ends the group in one breath with its greeting.
TEST_F(TcpTlsTest, AnEndThatIsToldWithAGreetingIsHeard) {
  InMemoryStore store;
  const TlsFiles files = certificates_.files();
  auto joining = std::async(std::launch::async, [&] {
    return make_tcp_communicator(store, 0, 2,
                                 {.tls = files, .join_timeout = kPlenty, .timeout = seconds(3)});
  });
  const auto endpoint =
      net::InternetAddress::parse(store.get("tcp/group/0", kPlenty), "the address of rank 0");
  tcp::Token token;
  std::istringstream(store.get("tcp/group/token", kPlenty)) >> token.high >> token.low;
  store.set("tcp/group/1/host", "127.0.0.1");
  store.set("tcp/group/1", "127.0.0.1:9");  // is not called
  const coordination::Security security(files, false, process_environment);
  std::vector<net::Stream> links;
  for (const auto channel :
       {tcp::Channel::kCollectives, tcp::Channel::kMessages, tcp::Channel::kControl}) {
    net::Descriptor socket = endpoint.socket();
    ASSERT_EQ(endpoint.connect(socket), 0);
    net::Stream& link =
        links.emplace_back(security.connect(std::move(socket), net::Stream::End::kCaller));
    while (!link.shake_hands()) {
      pollfd polled{link.fd(), POLLIN, 0};
      ASSERT_EQ(poll(&polled, 1, 20'000), 1);
    }
    tcp::Hello hello{.token = token, .size = 2, .from = 1, .to = 0, .channel = channel};
    seal(hello);
    std::string said(reinterpret_cast<const char*>(&hello), sizeof hello);
    if (channel == tcp::Channel::kControl)
      said += tcp::encode({.code = Code::kCancelled, .text = "enough"});
    const iovec all{said.data(), said.size()};
    ASSERT_EQ(link.write({&all, 1}), static_cast<ssize_t>(said.size()));
  }
  const auto group = joining.get();
  EXPECT_THAT(error_of([&] { group->barrier(); }).what(), HasSubstr("CANCELLED: enough"));
}

// A rank that is frozen: its system takes the connection, and nobody answers.
TEST_F(TcpTlsTest, AFrozenRankIsNamedWhenTheTimeToJoinIsOver) {
  InMemoryStore store;
  const net::Descriptor frozen = net::listen_on(net::InternetAddress());
  store.set("tcp/group/token", "1 2 TLS 2");
  store.set("tcp/group/0/host", "127.0.0.1");
  store.set("tcp/group/0", net::InternetAddress::of(frozen).text());
  TcpOptions own = options();
  own.join_timeout = milliseconds(300);
  const auto began = tcp::Clock::now();
  const Error error = error_of([&] { make_tcp_communicator(store, 1, 2, own); });
  EXPECT_LT(tcp::Clock::now() - began, kPlenty);
  EXPECT_EQ(error.code(), Code::kDeadlineExceeded);
  EXPECT_THAT(error.message(), AllOf(HasSubstr(net::InternetAddress::of(frozen).text()),
                                     HasSubstr("has not ended the handshake of TLS")));
}

TEST_F(TcpTlsTest, AnAbortEndsTheHandshakesOfAPart) {
  const Group group = make_tcp_group(2, {.tls = certificates_.files()});
  const net::Descriptor frozen = net::listen_on(net::InternetAddress());
  on_ranks(group, [&](int rank, Communicator& whole) {
    if (rank == 1) {
      const auto began = tcp::Clock::now();
      const Error error = error_of([&] { whole.split(0, 1); });
      EXPECT_LT(tcp::Clock::now() - began, kPlenty);
      EXPECT_THAT(error.what(), HasSubstr("ABORTED: enough"));
      return;
    }
    // As split() does, with an address where nobody shakes hands.
    struct {
      tcp::Token token;
      int64_t code = 0;
      char text[256] = {};
    } offer;
    net::InternetAddress::of(frozen).text().copy(offer.text, sizeof offer.text);
    choose_part(whole, 0, 0);
    tell_all(whole, "the addresses of a split", offer);
    pollfd polled{frozen.get(), POLLIN, 0};
    ASSERT_EQ(poll(&polled, 1, 20'000), 1);
    whole.abort(Error(Code::kAborted, "enough"));
  });
}

}  // namespace
}  // namespace cohort::testing
