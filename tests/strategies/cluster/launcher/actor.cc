// A task of a cluster for tests. Its arguments are what it does, in order: [WHO@]VERB[=VALUE],
// where WHO limits an action to a job ("worker") or to one task ("worker:1"). It ends with 0 after
// the last one.
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <functional>
#include <map>
#include <netinet/in.h>
#include <poll.h>
#include <string>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>

#include <nlohmann/json.hpp>

namespace {

using Json = nlohmann::json;

const char* variable(const std::string& name) { return std::getenv(name.c_str()); }

Json tf_config() {
  const char* text = variable("TF_CONFIG");
  return text ? Json::parse(text) : Json{{"task", {{"type", "none"}, {"index", 0}}}};
}

std::string job() { return tf_config()["task"]["type"]; }
std::string name() { return job() + ":" + tf_config()["task"]["index"].dump(); }

int port_of(const std::string& task) {
  const size_t colon = task.find(':');
  const int index = std::stoi(task.substr(colon + 1));
  const std::string address = tf_config()["cluster"][task.substr(0, colon)][index];
  return std::stoi(address.substr(address.find(':') + 1));
}

void say(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

[[noreturn]] void hang() {
  for (;;) pause();
}

// Waits until `condition` holds.
void wait_until(const std::function<bool()>& condition) {
  while (!condition()) std::this_thread::sleep_for(std::chrono::milliseconds(2));
}

// Leaves a process behind that can only be killed, in a session of its own if `value` is "daemon".
// It says so before this process goes on. A "family" is two, in a session of their own, the second
// below the first, and ends when it is asked to.
void leave_child(const std::string& value) {
  int ready[2];
  if (pipe(ready) != 0) std::abort();
  if (fork() == 0) {
    if (!value.empty()) setsid();
    if (value == "family" && fork() < 0) std::abort();
    if (value != "family")
      for (const int signal : {SIGTERM, SIGINT, SIGHUP}) std::signal(signal, SIG_IGN);
    close(ready[0]);
    close(ready[1]);
    hang();
  }
  close(ready[1]);
  char byte;
  [[maybe_unused]] const ssize_t end = read(ready[0], &byte, 1);
  close(ready[0]);
}

void flood(const std::string& value) {
  const int lines = std::stoi(value);
  for (int i = 0; i < lines; ++i) {
    std::printf("%d %s\n", i, std::string(static_cast<size_t>(i % 97), 'x').c_str());
    if (i % 7 == 0)
      std::fprintf(stderr, "e%d %s\n", i, std::string(static_cast<size_t>(i % 89), 'y').c_str());
  }
  std::fflush(stdout);
}

// Handles the signals that cohort-run passes on: says which came, and ends with `value`, or goes on
// without one.
int exit_code_after_signal = -1;
void handle_signals(const std::string& value) {
  exit_code_after_signal = value.empty() ? -1 : std::stoi(value);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGXCPU}) {
    std::signal(signal, [](int which) {
      const char* name = sigabbrev_np(which);
      [[maybe_unused]] ssize_t size = write(STDOUT_FILENO, "got SIG", 7);
      size = write(STDOUT_FILENO, name, strlen(name));
      size = write(STDOUT_FILENO, "\n", 1);
      if (exit_code_after_signal >= 0) _exit(exit_code_after_signal);
    });
  }
}

sockaddr_in loopback(int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

// A listening socket at this task's address, or -1 after saying why not: the "inherited" one; or a
// new one, "plain", or with what servers set: "reuseaddr", "reuseport" (both options, as gRPC),
// "wildcard" (all addresses of both families, as PyTorch).
int listen_at(int port, const std::string& manner) {
  const bool wildcard = manner == "wildcard";
  const int on = 1, off = 0;
  int server = -1;
  if (manner == "inherited") {
    server = std::stoi(variable("COHORT_LISTEN_FD"));
  } else {
    server = socket(wildcard ? AF_INET6 : AF_INET, SOCK_STREAM, 0);
    if (manner != "plain") setsockopt(server, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (manner == "reuseport") setsockopt(server, SOL_SOCKET, SO_REUSEPORT, &on, sizeof(on));
    if (wildcard) setsockopt(server, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
    const sockaddr_in address = loopback(port);
    sockaddr_in6 any{};
    any.sin6_family = AF_INET6;
    any.sin6_port = htons(static_cast<uint16_t>(port));
    const auto* where = wildcard ? reinterpret_cast<const sockaddr*>(&any)
                                 : reinterpret_cast<const sockaddr*>(&address);
    if (bind(server, where, wildcard ? sizeof(any) : sizeof(address)) != 0) {
      say(std::string("cannot bind: ") + strerror(errno) + "\n");
      return -1;
    }
  }
  if (listen(server, 8) == 0) return server;
  say(std::string("cannot listen: ") + strerror(errno) + "\n");
  return -1;
}

// Listens, says so, and answers one caller with this task's name.
void serve(const std::string& manner) {
  const int server = listen_at(port_of(name()), manner);
  if (server < 0) return;
  const int caller = accept(server, nullptr, nullptr);
  const std::string answer = "this is " + name() + "\n";
  if (write(caller, answer.data(), answer.size()) < 0) std::abort();
  close(caller);
}

// Calls another task until it answers, and says what.
void call(const std::string& task) {
  wait_until([&] {
    const int caller = socket(AF_INET, SOCK_STREAM, 0);
    const sockaddr_in address = loopback(port_of(task));
    const bool connected =
        connect(caller, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
    char answer[100];
    const ssize_t size = connected ? read(caller, answer, sizeof(answer)) : 0;
    if (size > 0) say(std::string(answer, static_cast<size_t>(size)));
    close(caller);
    return size > 0;
  });
}

int restarts() { return std::stoi(variable("COHORT_RESTART_COUNT")); }
int task_restarts() { return std::stoi(variable("COHORT_TASK_RESTART_COUNT")); }

const std::map<std::string, std::function<void(const std::string&)>> kVerbs = {
    {"print", [](const std::string& text) { say(text + "\n"); }},
    {"complain", [](const std::string& text) { std::fprintf(stderr, "%s\n", text.c_str()); }},
    {"write", say},
    {"write_binary",
     [](const std::string&) {
       for (int byte = 0; byte < 256; ++byte) std::putchar(byte);
       std::fflush(stdout);
     }},
    {"write_long", [](const std::string& size) { say(std::string(std::stoul(size), 'z')); }},
    {"show",
     [](const std::string& name) {
       const char* value = variable(name);
       say(name + (value ? std::string("=") + value : std::string(" is unset")) + "\n");
     }},
    {"flood", flood},
    {"exit", [](const std::string& code) { std::exit(std::stoi(code)); }},
    {"raise", [](const std::string& signal) { raise(std::stoi(signal)); }},
    {"hang", [](const std::string&) { hang(); }},
    {"fail_before_restart",
     [](const std::string& restart) {
       if (restarts() < std::stoi(restart)) std::exit(3);
     }},
    {"fail_before_task_restart",
     [](const std::string& restart) {
       if (task_restarts() < std::stoi(restart)) std::exit(3);
     }},
    {"die_before_task_restart",
     [](const std::string& restart) {
       if (task_restarts() < std::stoi(restart)) raise(SIGKILL);
     }},
    {"handle_signals", handle_signals},
    {"leave_child", leave_child},
    {"await_file",
     [](const std::string& path) { wait_until([&] { return access(path.c_str(), F_OK) == 0; }); }},
    {"serve", serve},
    {"listen",
     [](const std::string& manner) {
       if (listen_at(port_of(name()), manner) >= 0) say("listens\n");
     }},
    {"call", call},
};

void act(std::string action) {
  const size_t at = action.find('@');
  if (at != std::string::npos) {
    const std::string who = action.substr(0, at);
    if (who != name() && who != job()) return;
    action.erase(0, at + 1);
  }
  const size_t equals = action.find('=');
  const auto verb = kVerbs.find(action.substr(0, equals));
  if (verb == kVerbs.end()) {
    std::fprintf(stderr, "no such action: %s\n", action.c_str());
    std::exit(99);
  }
  verb->second(equals == std::string::npos ? "" : action.substr(equals + 1));
}

}  // namespace

int main(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) act(argv[i]);
  return 0;
}
