// Who is let in where nodes meet: strangers, and nodes with and without certificates.
#include <cerrno>
#include <csignal>
#include <string>
#include <sys/socket.h>
#include <sys/time.h>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "strategies/cluster/net/descriptor.h"
#include "strategies/cluster/net/internet_address.h"
#include "strategies/cluster/net/socket.h"
#include "tests/strategies/cluster/launcher/nodes.h"

namespace cohort::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

net::InternetAddress rendezvous_of(const Nodes& nodes) {
  return net::InternetAddress().with_port(nodes.port());
}

// Connects to the rendezvous as a stranger and sends `bytes`; expects to be dropped, perhaps with
// an alert of TLS.
void expect_drop(const Nodes& nodes, const std::string& bytes) {
  const auto address = rendezvous_of(nodes);
  const net::Descriptor socket = address.socket();
  ASSERT_EQ(address.connect(socket), 0);
  const timeval patience{.tv_sec = 60, .tv_usec = 0};
  setsockopt(socket.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
  char alert[100];
  ssize_t all = 0, got = 0;
  while (all < 50 && (got = recv(socket.get(), alert, sizeof alert, 0)) > 0) all += got;
  EXPECT_TRUE(got == 0 || (got < 0 && errno == ECONNRESET)) << all << " bytes, " << got;
}

TEST(NodesTest, DropStrangers) {
  Nodes nodes({"--nnodes=2"}, {"print=done"});
  nodes.start_rank(0).wait_for_errors("waiting for nodes");
  expect_drop(nodes, "GET / HTTP/1.0\r\n\r\n");
  expect_drop(nodes, std::string("\0\0\0\2{}", 6));
  expect_drop(nodes, std::string("\0\0\0\1[", 5));
  expect_drop(nodes, std::string("\0\0", 2));  // and then nothing
  const auto address = rendezvous_of(nodes);
  std::vector<net::Descriptor> crowd;
  for (int i = 0; i < 100; ++i) {
    crowd.push_back(address.socket());
    EXPECT_EQ(address.connect(crowd.back()), 0);
  }
  nodes.start_rank(1);
  EXPECT_THAT(nodes.wait(), ElementsAre(0, 0)) << nodes.all_errors();
}

TEST(NodesTest, MeetOverTlsWhereTheyHaveCertificates) {
  const Certificates certificates;
  Nodes nodes({"--nnodes=2"}, {"show=RANK"});
  nodes.use(certificates.files());
  nodes.start_rank(0).wait_for_errors("waiting for nodes");
  expect_drop(nodes, "GET / HTTP/1.0\r\n\r\n");
  expect_drop(nodes, std::string("\x16\x03\x01\x00\x05\x01\x02\x03\x04\x05", 10));
  nodes.start_rank(1);
  EXPECT_THAT(nodes.wait(), ElementsAre(0, 0)) << nodes.all_errors();
  EXPECT_EQ(shown(nodes[1].output(), "worker:1", "RANK"), "1");
}

// Each is told why, and does no harm to the others.
TEST(NodesTest, RefuseThoseWithoutTheRightCertificates) {
  const Certificates certificates;
  certificates.sign("stranger", Certificates::kNames, "other-ca");
  certificates.sign("server", std::string(Certificates::kNames) + ",URI:cohort://*/ps/*");
  Nodes nodes({"--nnodes=2"}, {"print=done"});
  nodes.use(certificates.files());
  nodes.start_rank(0).wait_for_errors("waiting for nodes");
  const auto expect = [&](int code, const std::string& why) {
    Launched& node = nodes.start_rank(1);
    EXPECT_EQ(node.wait(), code) << node.errors();
    EXPECT_THAT(node.errors(), HasSubstr("the rendezvous at 127.0.0.1:")) << why;
    EXPECT_THAT(node.errors(), HasSubstr(why));
    nodes.forget_last();
  };
  constexpr int kPermissionDenied = 17, kFailedPrecondition = 19;
  nodes.use(certificates.files("stranger", "both-cas"));
  expect(kPermissionDenied, "it does not know the authority of this end's certificate");
  nodes.use(certificates.files("stranger", "other-ca"));
  expect(kPermissionDenied, "it shows a certificate that is signed by an unknown authority");
  nodes.use(certificates.files("server"));
  expect(kPermissionDenied, "has a certificate that is for cohort://*/ps/*");
  nodes.use(certificates.files());
  nodes.environment()["COHORT_TLS_LEADER_NAME"] = "somebody.example";
  expect(kPermissionDenied, "does not carry the name somebody.example");
  nodes.environment() = {};
  expect(kFailedPrecondition, "it speaks TLS, but this end has no certificates");
  nodes[0].wait_for_errors("refuses a node at 127.0.0.1: PERMISSION_DENIED: it ");
  nodes.use(certificates.files());
  nodes.start_rank(1);
  EXPECT_THAT(nodes.wait(), ElementsAre(0, 0)) << nodes.all_errors();
}

// The second node, which the first one refuses and says so; that one is ended then.
Launched& start_refused(Nodes& nodes, const std::string& refusal) {
  Launched& node = nodes.start_rank(1);
  EXPECT_EQ(node.wait(), 19);
  nodes[0].wait_for_errors("refuses a node at 127.0.0.1: " + refusal);
  nodes[0].send(SIGTERM);
  nodes[0].wait();
  return node;
}

TEST(NodesTest, DoNotSpeakPlainTextWhereTheyHaveCertificates) {
  const Certificates certificates;
  Nodes nodes({"--nnodes=2"}, {"print=done"});
  nodes.start_rank(0).wait_for_errors("waiting for nodes");
  nodes.use(certificates.files());
  const Launched& node = start_refused(
      nodes,
      "FAILED_PRECONDITION: it speaks TLS, but this end has no certificates (COHORT_TLS_CERT, ");
  EXPECT_THAT(node.errors(), HasSubstr("it speaks plain text"));
}

TEST(NodesTest, NameWhoSpeaksPlainTextWhereTheyHaveCertificates) {
  const Certificates certificates;
  Nodes nodes({"--nnodes=2"}, {"print=done"});
  nodes.use(certificates.files());
  nodes.start_rank(0).wait_for_errors("waiting for nodes");
  nodes.environment() = {};
  start_refused(nodes,
                "FAILED_PRECONDITION: it speaks plain text, but this end has certificates "
                "(COHORT_TLS_CERT, ");
}

TEST(NodesTest, GiveUpWhenNobodyShakesHands) {
  const Certificates certificates;
  Nodes nodes({"--nnodes=2", "--join_timeout=2", "--node_timeout=1"});
  const net::Descriptor frozen = net::listen_on(rendezvous_of(nodes));
  nodes.use(certificates.files());
  EXPECT_EQ(nodes.start_rank(1).wait(), 14);
  EXPECT_THAT(nodes[0].errors(), HasSubstr("gave up waiting for the rendezvous"));
}

}  // namespace
}  // namespace cohort::testing
