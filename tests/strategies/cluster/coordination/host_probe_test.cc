#include "strategies/cluster/coordination/host_probe.h"

#include <thread>

#include <gtest/gtest.h>

#include "strategies/cluster/net/socket.h"
#include "tests/strategies/cluster/coordination/job.h"
#include "tests/testing/few_descriptors.h"

namespace cohort::testing {
namespace {

using coordination::HostProbe;

constexpr milliseconds kInterval(10);

net::InternetAddress loopback() { return net::InternetAddress::parse("127.0.0.1:0", "a test"); }

// How many of `count` questions, one after the other, show that the host is silent.
int silent_verdicts(HostProbe& probe, int count) {
  int verdicts = 0;
  for (int asked = 0; asked < count;) {
    std::this_thread::sleep_until(probe.next_question());
    const auto now = std::chrono::steady_clock::now();
    if (now < probe.next_question()) continue;
    verdicts += probe.ask(now, kInterval);
    ++asked;
  }
  return verdicts;
}

// As when the leader's process is frozen: nobody accepts.
TEST(HostProbe, AHostAnswersForAProcessThatHangs) {
  const net::Descriptor listening = net::listen_on(loopback());
  HostProbe probe(net::InternetAddress::of(listening));
  EXPECT_EQ(silent_verdicts(probe, 12), 0);
}

TEST(HostProbe, ARefusalIsAnAnswer) {
  net::Descriptor listening = net::listen_on(loopback());
  HostProbe probe(net::InternetAddress::of(listening));
  listening.reset();
  EXPECT_EQ(silent_verdicts(probe, 12), 0);
}

TEST(HostProbe, AProcessThatCannotAskBlamesNobody) {
  const net::Descriptor listening = net::listen_on(loopback());
  HostProbe probe(net::InternetAddress::of(listening));
  const FewDescriptors none(0);
  EXPECT_EQ(silent_verdicts(probe, 12), 0);
}

// A full queue of connections leaves questions without an answer, as a cut cable does.
TEST(HostProbe, SeveralQuestionsWithoutAnAnswerAreSilence) {
  const net::Descriptor listening = loopback().socket();
  ASSERT_EQ(loopback().bind(listening), 0);
  ASSERT_EQ(listen(listening.get(), 0), 0);
  const auto address = net::InternetAddress::of(listening);
  const net::Descriptor first = net::start_connecting(address);
  const net::Descriptor second = net::start_connecting(address);
  HostProbe probe(address);
  EXPECT_EQ(silent_verdicts(probe, 4), 0);
  EXPECT_EQ(silent_verdicts(probe, 3), 3);
  probe.forget();
  EXPECT_EQ(silent_verdicts(probe, 4), 0) << "it begins anew";
}

}  // namespace
}  // namespace cohort::testing
