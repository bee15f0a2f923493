// What TCP over loopback allows: BYTES REPETITIONS. Two processes with one connection do nothing
// but send so many bytes from memory to memory: one way, and both ways at once. Medians count; both
// meet before each repetition and after it.
#include <algorithm>
#include <arpa/inet.h>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

namespace {

constexpr int kWarmUpRepetitions = 3;

int checked(int result, const char* what) {
  if (result >= 0) return result;
  std::perror(what);
  std::exit(1);
}

// One end of the connection, and the memory that goes through it.
class End {
 public:
  End(int socket, bool is_first, size_t bytes)
      : socket_(socket), is_first_(is_first), outgoing_(bytes, 1), incoming_(bytes, 2) {}

  bool is_first() const { return is_first_; }
  void one_way() { is_first_ ? send_all(outgoing_) : receive_all(incoming_); }
  void both_ways() {
    std::thread sender([this] { send_all(outgoing_); });
    receive_all(incoming_);
    sender.join();
  }
  void meet() {
    std::vector<char> own(1), other(1);
    send_all(own);
    receive_all(other);
  }

 private:
  void send_all(const std::vector<char>& data) const {
    for (size_t sent = 0; sent < data.size();)
      sent += static_cast<size_t>(
          checked(static_cast<int>(send(socket_, &data[sent], part(data.size() - sent), 0)),
                  "cannot send"));
  }
  void receive_all(std::vector<char>& data) const {
    for (size_t received = 0; received < data.size();) {
      const int got =
          checked(static_cast<int>(recv(socket_, &data[received], part(data.size() - received), 0)),
                  "cannot receive");
      if (got == 0) std::exit(1);
      received += static_cast<size_t>(got);
    }
  }
  static size_t part(size_t bytes) { return std::min(bytes, size_t{1} << 30); }

  const int socket_;
  const bool is_first_;
  std::vector<char> outgoing_, incoming_;
};

double gigabytes_per_second(End& end, void (End::*work)(), size_t bytes, int repetitions) {
  std::vector<double> times;
  for (int r = -kWarmUpRepetitions; r < repetitions; ++r) {
    end.meet();
    const auto begin = std::chrono::steady_clock::now();
    (end.*work)();
    end.meet();
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
    if (r >= 0) times.push_back(taken.count());
  }
  std::sort(times.begin(), times.end());
  return static_cast<double>(bytes) / times[times.size() / 2] / 1e9;
}

void measure(int socket, bool is_first, size_t bytes, int repetitions) {
  const int on = 1;
  checked(setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)), "cannot send at once");
  End end(socket, is_first, bytes);
  const double one_way = gigabytes_per_second(end, &End::one_way, bytes, repetitions),
               both_ways = gigabytes_per_second(end, &End::both_ways, bytes, repetitions);
  if (end.is_first())
    std::printf("socket bytes=%zu one_way_GBs=%.3f both_ways_GBs=%.3f\n", bytes, one_way,
                both_ways);
}

}  // namespace

int main(int argc, char** argv) {
  const long bytes = argc == 3 ? std::atol(argv[1]) : 0;
  const int repetitions = argc == 3 ? std::atoi(argv[2]) : 0;
  if (bytes < 1 || repetitions < 1) return 64;
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  auto* const name = reinterpret_cast<sockaddr*>(&address);
  socklen_t size = sizeof(address);
  const int listener = checked(socket(AF_INET, SOCK_STREAM, 0), "cannot make a socket");
  checked(bind(listener, name, size), "cannot bind a socket");
  checked(listen(listener, 1), "cannot listen");
  checked(getsockname(listener, name, &size), "cannot tell the port");
  const int first = checked(socket(AF_INET, SOCK_STREAM, 0), "cannot make a socket");
  checked(connect(first, name, size), "cannot connect");
  const int second = checked(accept(listener, nullptr, nullptr), "cannot accept");
  const pid_t child = checked(fork(), "cannot fork");
  close(child == 0 ? first : second);  // so that each sees the end of the other
  measure(child == 0 ? second : first, child != 0, static_cast<size_t>(bytes), repetitions);
  if (child != 0) waitpid(child, nullptr, 0);
}
