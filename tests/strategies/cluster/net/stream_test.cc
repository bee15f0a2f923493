#include "strategies/cluster/net/stream.h"

#include <future>
#include <poll.h>
#include <random>
#include <sys/socket.h>
#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <openssl/ssl.h>

#include "core/base/error.h"
#include "core/base/file.h"
#include "strategies/cluster/coordination/security.h"
#include "strategies/cluster/net/internet_address.h"
#include "strategies/cluster/net/socket.h"
#include "tests/testing/certificates.h"
#include "tests/testing/error_of.h"
#include "tests/testing/trials.h"

namespace cohort::testing {
namespace {

using net::Descriptor;
using net::Stream;
using net::TlsIdentity;
using std::chrono::seconds;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Clock = std::chrono::steady_clock;

constexpr seconds kPlenty(20);

// The two ends of a connection over the loopback.
struct Sockets {
  Descriptor caller, called;

  Sockets() {
    const Descriptor listener = net::listen_on(net::InternetAddress());
    caller = net::start_connecting(net::InternetAddress::of(listener));
    pollfd polled{listener.get(), POLLIN, 0};
    poll(&polled, 1, 10'000);
    called = Descriptor(accept(listener.get(), nullptr, nullptr));
    net::send_at_once(called.get());
  }
};

void wait_for(const Stream& stream) {
  pollfd polled{stream.fd(), stream.events(), 0};
  poll(&polled, 1, 10);
}

ssize_t read(Stream& stream, void* data, size_t size) {
  const iovec piece{data, size};
  return stream.read({&piece, 1});
}
ssize_t write(Stream& stream, const void* data, size_t size) {
  const iovec piece{const_cast<void*>(data), size};
  return stream.write({&piece, 1});
}

class StreamTest : public ::testing::Test {
 protected:
  TlsIdentity identity(const std::string& name = "task", const std::string& ca = "ca") const {
    const auto pem = [&](const std::string& file) {
      return net::Pem{read_file(certificates_.path(file), 1 << 20), file};
    };
    return {pem(name + ".pem"), pem(name + ".key"), pem(ca + ".pem")};
  }
  // With a certificate that one may not begin with.
  TlsIdentity expired() const {
    certificates_.sign("expired", Certificates::kNames, "ca", -1);
    TlsIdentity made = identity();
    auto* const context = static_cast<SSL_CTX*>(made.context());
    EXPECT_EQ(1, SSL_CTX_use_certificate_file(context, certificates_.path("expired.pem").c_str(),
                                              SSL_FILETYPE_PEM));
    EXPECT_EQ(1, SSL_CTX_use_PrivateKey_file(context, certificates_.path("expired.key").c_str(),
                                             SSL_FILETYPE_PEM));
    return made;
  }

  // Shakes hands, sends a byte and reads one: what has gone wrong, or "". Closes after that.
  static std::string greet(Stream stream) {
    const auto until = Clock::now() + kPlenty;
    try {
      while (!stream.shake_hands()) {
        if (Clock::now() > until) return "shakes hands for ever";
        wait_for(stream);
      }
      char byte = 'x';
      if (write(stream, &byte, 1) != 1) return stream.failure(errno);
      for (; Clock::now() < until; wait_for(stream)) {
        const ssize_t got = read(stream, &byte, 1);
        if (got == 1) return byte == 'x' ? "" : "another byte";
        if (got == 0) return stream.failure(0);
        if (errno != EAGAIN) return stream.failure(errno);
      }
      return "waits for ever";
    } catch (const Error& error) {
      return error.what();
    }
  }
  struct Outcome {
    std::string caller, called;
  };
  static Outcome meet(Stream caller, Stream called) {
    auto other = std::async(std::launch::async, greet, std::move(caller));
    Outcome outcome;
    outcome.called = greet(std::move(called));
    outcome.caller = other.get();
    return outcome;
  }
  static Outcome meet(const TlsIdentity& caller, const TlsIdentity& called) {
    Sockets sockets;
    return meet(Stream(std::move(sockets.caller), caller, Stream::End::kCaller),
                Stream(std::move(sockets.called), called, Stream::End::kCalled));
  }
  // Both of "task", after the handshake.
  std::pair<Stream, Stream> pair(Sockets sockets = {}) const {
    Stream caller(std::move(sockets.caller), identity(), Stream::End::kCaller);
    Stream called(std::move(sockets.called), identity(), Stream::End::kCalled);
    const auto until = Clock::now() + kPlenty;
    while (int{caller.shake_hands()} + int{called.shake_hands()} < 2 && Clock::now() < until) {
    }
    return {std::move(caller), std::move(called)};
  }

  const Certificates certificates_;
};

TEST_F(StreamTest, EndsWithCertificatesOfOneAuthorityMeet) {
  certificates_.sign("other", "DNS:*.example,URI:cohort://*/worker/1,URI:cohort://x/ps/2");
  const auto outcome = meet(identity("task"), identity("other"));
  EXPECT_EQ(outcome.caller, "");
  EXPECT_EQ(outcome.called, "");
}

TEST_F(StreamTest, AnEndKnowsWhatTheOthersCertificateSays) {
  certificates_.sign("task",
                     "DNS:leader.example,DNS:*.wide.example,IP:10.0.0.1,IP:::1,"
                     "URI:cohort://*/worker/1,URI:cohort://x/ps/2");
  const auto [caller, called] = pair();
  for (const Stream* stream : {&caller, &called}) {
    EXPECT_THAT(stream->peer_uris(), ElementsAre("cohort://*/worker/1", "cohort://x/ps/2"));
    for (const char* name : {"leader.example", "a.wide.example", "10.0.0.1", "::1"})
      EXPECT_TRUE(stream->peer_is_named(name)) << name;
    for (const char* name : {"example", "leader.example.org", "wide.example", "10.0.0.2", ""})
      EXPECT_FALSE(stream->peer_is_named(name)) << name;
  }
}

TEST_F(StreamTest, BytesOfAllSizesPassInPiecesOfAllSizes) {
  std::mt19937_64 random(trials(std::random_device()(), 1).seed);
  auto [from, to] = pair();
  std::string sent(5'000'000, 0), got(sent.size(), 0);
  for (char& c : sent) c = static_cast<char>(random());
  const auto pieces = [&](std::string& all, size_t begin) {
    std::vector<iovec> made;
    while (begin < all.size() && made.size() < 1 + random() % 5) {
      const size_t size = std::min<size_t>(all.size() - begin, size_t{1} << random() % 19);
      made.push_back({all.data() + begin, size});
      begin += size;
    }
    return made;
  };
  const auto until = Clock::now() + kPlenty;
  for (size_t out = 0, in = 0; in < got.size() && Clock::now() < until;) {
    if (out < sent.size()) {
      const ssize_t size = from.write(pieces(sent, out));
      ASSERT_TRUE(size > 0 || errno == EAGAIN) << from.failure(errno);
      if (size > 0) out += static_cast<size_t>(size);
    } else {
      from.flush();
    }
    const ssize_t size = to.read(pieces(got, in));
    ASSERT_TRUE(size > 0 || errno == EAGAIN) << to.failure(errno);
    if (size > 0) in += static_cast<size_t>(size);
  }
  EXPECT_TRUE(got == sent);
  EXPECT_FALSE(from.has_unsent());
}

// After so many bytes there are new keys.
TEST_F(StreamTest, MoreThanAGibibytePasses) {
  auto [from, to] = pair();
  std::vector<char> out(1 << 20), in(1 << 20);
  constexpr size_t kBytes = (size_t{1} << 30) + (size_t{1} << 22);
  const auto until = Clock::now() + 10 * kPlenty;
  size_t sent = 0, got = 0;
  while (got < kBytes) {
    ASSERT_LT(Clock::now(), until);
    if (sent < kBytes) {
      out[0] = static_cast<char>(sent >> 20);
      const ssize_t size = write(from, out.data(), std::min(out.size(), kBytes - sent));
      ASSERT_TRUE(size > 0 || errno == EAGAIN) << from.failure(errno);
      if (size > 0) sent += static_cast<size_t>(size);
    }
    from.flush();
    const ssize_t size = read(to, in.data(), in.size());
    ASSERT_TRUE(size > 0 || errno == EAGAIN) << to.failure(errno);
    if (size > 0) got += static_cast<size_t>(size);
  }
}

TEST_F(StreamTest, WhoIsSignedByAnotherAuthorityIsRefused) {
  certificates_.sign("stranger", Certificates::kNames, "other-ca");
  const std::string unknown =
      "PERMISSION_DENIED: shows a certificate that is signed by an unknown authority";
  const std::string not_known = "does not know the authority of this end's certificate";
  auto outcome = meet(identity("stranger", "both-cas"), identity());
  EXPECT_EQ(outcome.called, unknown);
  EXPECT_EQ(outcome.caller, not_known);
  outcome = meet(identity(), identity("stranger", "both-cas"));
  EXPECT_EQ(outcome.caller, unknown);
  EXPECT_EQ(outcome.called, "PERMISSION_DENIED: " + not_known);
  outcome = meet(identity("stranger", "other-ca"), identity());
  EXPECT_EQ(outcome.caller, unknown);
}

// A certificate that is among the authorities needs no other one.
TEST_F(StreamTest, ACertificateThatItsOwnAuthoritiesHaveNotSignedIsAMistake) {
  certificates_.sign("stranger", Certificates::kNames, "other-ca");
  EXPECT_THAT(error_of([&] { identity("stranger"); }).what(),
              AllOf(HasSubstr("INVALID_ARGUMENT"), HasSubstr("is not signed by an authority in")));
  EXPECT_NO_THROW(identity("stranger", "stranger"));
  EXPECT_NO_THROW(identity("stranger", "both-cas"));
}

TEST_F(StreamTest, WhoseCertificateHasExpiredIsRefused) {
  auto outcome = meet(expired(), identity());
  EXPECT_EQ(outcome.called, "PERMISSION_DENIED: shows a certificate that has expired");
  EXPECT_EQ(outcome.caller, "says that this end's certificate has expired");
  outcome = meet(identity(), expired());
  EXPECT_EQ(outcome.caller, "PERMISSION_DENIED: shows a certificate that has expired");
  EXPECT_EQ(outcome.called, "PERMISSION_DENIED: says that this end's certificate has expired");
}

TEST_F(StreamTest, PlainTextAtOneEndIsSaidAtBoth) {
  Sockets sockets;
  auto outcome = meet(Stream(std::move(sockets.caller)),
                      Stream(std::move(sockets.called), identity(), Stream::End::kCalled));
  const std::string settings = " (COHORT_TLS_CERT, COHORT_TLS_KEY, COHORT_TLS_CA)";
  EXPECT_EQ(outcome.caller, "speaks TLS, but this end has no certificates" + settings);
  EXPECT_EQ(outcome.called,
            "FAILED_PRECONDITION: speaks plain text, but this end has certificates" + settings);
  sockets = Sockets();
  outcome = meet(Stream(std::move(sockets.caller), identity(), Stream::End::kCaller),
                 Stream(std::move(sockets.called)));
  EXPECT_THAT(outcome.caller, HasSubstr("FAILED_PRECONDITION: speaks plain text"));
  EXPECT_EQ(outcome.called, "speaks TLS, but this end has no certificates" + settings);
}

// Whatever bytes come, at whatever place of the handshake.
TEST_F(StreamTest, AHandshakeOfOtherBytesIsRefused) {
  const auto [seed, count] = trials(std::random_device()(), 60);
  std::mt19937_64 random(seed);
  for (uint64_t round = 0; round < count; ++round) {
    Sockets sockets;
    std::string bytes(1 + random() % 3000, 0);
    for (char& c : bytes) c = static_cast<char>(random());
    if (round % 3 > 0) bytes.replace(0, 3, {0x16, 3, 1});  // a record of anything
    if (round % 3 > 1 && bytes.size() > 5) bytes.replace(3, 2, {1, 0});
    ASSERT_EQ(send(sockets.caller.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
    shutdown(sockets.caller.get(), SHUT_WR);
    const std::string said = greet(Stream(std::move(sockets.called), identity(),
                                          round % 2 ? Stream::End::kCalled : Stream::End::kCaller));
    EXPECT_THAT(said, AnyOf(HasSubstr("speaks plain text"), HasSubstr("has sent what is not right"),
                            HasSubstr("has ended TLS"), HasSubstr("has closed its connection"),
                            HasSubstr("cannot be reached"), HasSubstr("this end's certificate")));
  }
}

TEST_F(StreamTest, AnEndThatSaysNothingIsNotWaitedFor) {
  Sockets sockets;
  Stream called(std::move(sockets.called), identity(), Stream::End::kCalled);
  const auto began = Clock::now();
  for (int i = 0; i < 100; ++i) EXPECT_FALSE(called.shake_hands());
  EXPECT_LT(Clock::now() - began, seconds(5));
  sockets.caller.reset();
  EXPECT_EQ(greet(std::move(called)), "UNAVAILABLE: has closed its connection");
}

TEST_F(StreamTest, ABitThatIsAnotherOneIsFound) {
  Sockets sockets;
  const int raw = dup(sockets.caller.get());
  const Descriptor owner(raw);
  auto [caller, called] = pair(std::move(sockets));
  const char forged[] = {23, 3,  3,  0,  20, 1,  2,  3,  4,  5,  6,  7, 8,
                         9,  10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20};
  ASSERT_EQ(send(raw, forged, sizeof forged, MSG_NOSIGNAL), ssize_t{sizeof forged});
  char byte;
  ssize_t got = -1;
  const auto until = Clock::now() + kPlenty;
  while ((got = read(called, &byte, 1)) < 0 && errno == EAGAIN && Clock::now() < until)
    wait_for(called);
  EXPECT_EQ(got, -1);
  EXPECT_EQ(errno, EPROTO);
  EXPECT_THAT(called.failure(EPROTO), HasSubstr("has sent what is not right in TLS"));
  EXPECT_EQ(read(called, &byte, 1), -1);
}

TEST_F(StreamTest, PlainBytesPassAsTheyAre) {
  Sockets sockets;
  const auto outcome = meet(Stream(std::move(sockets.caller)), Stream(std::move(sockets.called)));
  EXPECT_EQ(outcome.caller, "");
  EXPECT_EQ(outcome.called, "");
}

}  // namespace
}  // namespace cohort::testing
