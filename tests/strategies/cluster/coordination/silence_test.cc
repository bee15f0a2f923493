#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "strategies/cluster/torchrun_resolver.h"
#include "tests/strategies/cluster/coordination/job.h"

// Members whose link to the leader goes dead, without a word from the network.
namespace cohort::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

int loopback_socket(int port, bool listening) {
  const int descriptor = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int yes = 1;
  setsockopt(descriptor, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  const bool ready =
      listening ? bind(descriptor, generic, sizeof address) == 0 && listen(descriptor, 8) == 0
                : connect(descriptor, generic, sizeof address) == 0;
  if (ready) return descriptor;
  close(descriptor);
  return -1;
}

// A cable between a member and the leader: passes bytes on until it is cut. Then nothing gets
// through, and neither end is told.
class Cable {
 public:
  Cable(int port, int leader_port)
      : listening_(loopback_socket(port, true)),
        thread_([this, leader_port] { run(leader_port); }) {}
  ~Cable() {
    stopping_ = true;
    thread_.join();
    for (const int end : ends_) close(end);
    close(listening_);
  }
  void cut() { cut_ = true; }
  void mend() { cut_ = false; }

 private:
  void run(int leader_port) {
    while (!stopping_) {
      std::vector<pollfd> waiting = {{.fd = listening_, .events = POLLIN}};
      for (const int end : ends_) waiting.push_back({.fd = end, .events = POLLIN});
      if (cut_ || poll(waiting.data(), waiting.size(), 5) <= 0) {
        if (cut_) std::this_thread::sleep_for(milliseconds(5));
        continue;
      }
      for (size_t i = 1; i < waiting.size(); ++i) {
        if (waiting[i].revents) pass_on(i - 1);
      }
      if (waiting[0].revents) connect_through(leader_port);
    }
  }
  // Ends come in pairs.
  void pass_on(size_t from) {
    char bytes[4096];
    const ssize_t count = read(ends_[from], bytes, sizeof bytes);
    const int to = ends_[from ^ 1];
    if (count <= 0 || send(to, bytes, static_cast<size_t>(count), MSG_NOSIGNAL) != count) {
      shutdown(to, SHUT_RDWR);
      shutdown(ends_[from], SHUT_RDWR);
    }
  }
  void connect_through(int leader_port) {
    const int near = accept4(listening_, nullptr, nullptr, SOCK_CLOEXEC);
    const int far = loopback_socket(leader_port, false);
    if (far < 0) {
      close(near);
      return;
    }
    ends_.push_back(near);
    ends_.push_back(far);
  }

  const int listening_;
  std::vector<int> ends_;
  std::atomic<bool> cut_ = false, stopping_ = false;
  std::thread thread_;
};

TorchrunResolver resolver(int rank, int size, int port) {
  return TorchrunResolver(environment({{"RANK", std::to_string(rank)},
                                       {"WORLD_SIZE", std::to_string(size)},
                                       {"MASTER_ADDR", "127.0.0.1"},
                                       {"MASTER_PORT", std::to_string(port)}}));
}

class CutLink : public ::testing::Test {
 protected:
  // worker:2 is connected through the cable. Quick, but with room for a busy machine.
  CutLink() : cable_(job_.port(1), job_.port(0)), members_(3) {
    const auto errors = on_threads(3, [&](int rank) {
      members_[rank] =
          join(resolver(rank, 3, job_.port(rank == 2 ? 1 : 0)), {.heartbeat = milliseconds(100),
                                                                 .suspect_after = milliseconds(700),
                                                                 .dead_after = milliseconds(2000),
                                                                 .notice = notices_.sink()});
    });
    EXPECT_THAT(errors, ::testing::Each(""));
  }
  std::string failure(int rank) {
    EXPECT_TRUE(eventually([&] { return members_[rank]->failure().has_value(); }));
    return members_[rank]->failure()->what();
  }
  bool noticed(const std::string& text) {
    return eventually([&] { return notices_.text().find(text) != std::string::npos; });
  }

  Notices notices_;
  LocalJob job_{2};  // two ports: the leader's and the cable's
  Cable cable_;
  Members members_;
};

TEST_F(CutLink, BothSidesNameTheOther) {
  cable_.cut();
  EXPECT_TRUE(noticed("worker:1: worker:2 has been silent for"));
  for (const int rank : {0, 1}) {
    EXPECT_THAT(failure(rank), AllOf(HasSubstr("worker:2 counts as dead: silent for"),
                                     HasSubstr("(peer worker:2)")));
  }
  EXPECT_THAT(failure(2),
              AllOf(HasSubstr("the leader, counts as dead"), HasSubstr("(peer worker:0)")));
}

TEST_F(CutLink, AShortCutIsNoFailure) {
  cable_.cut();
  EXPECT_TRUE(noticed("worker:2 has been silent for"));
  cable_.mend();
  EXPECT_TRUE(noticed("worker:2 is heard again"));
  members_[2]->store().set("k", "v");
  EXPECT_EQ(members_[0]->store().get("k", kPlenty), "v");
  for (const auto& member : members_) EXPECT_FALSE(member->failure());
}

TEST_F(CutLink, FlappingIsNoFailure) {
  for (int flap = 0; flap < 10; ++flap) {
    cable_.cut();
    std::this_thread::sleep_for(milliseconds(150));
    cable_.mend();
    std::this_thread::sleep_for(milliseconds(50));
  }
  const auto errors = on_threads(3, [&](int rank) { members_[rank]->barrier("b", kPlenty); });
  EXPECT_THAT(errors, ::testing::Each(""));
}

}  // namespace
}  // namespace cohort::testing
