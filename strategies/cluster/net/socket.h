#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "strategies/cluster/net/descriptor.h"
#include "strategies/cluster/net/internet_address.h"

// What is done to sockets of TCP.
namespace cohort::net {

// A non-blocking socket that listens at `address`, which errors call `written`, or where that is
// empty, by its own text. They are those of fail_to_listen().
Descriptor listen_on(const InternetAddress& address, const std::string& written = {});
// Throws why somebody cannot listen, which has set errno to `error`; `what`: "the leader cannot
// listen at h1:2222". kFailedPrecondition where `port` is in use, and where the address is not of
// this host; else the code_of_errno().
[[noreturn]] void fail_to_listen(const std::string& what, int error, int port);
// Begins to connect; the socket, which does not block, becomes writable when that has ended.
// kUnavailable where it cannot even begin.
Descriptor start_connecting(const InternetAddress& address);
// What became of it: 0, or the errno.
int connection_error(int fd);

// Sets an option whose value is a number; one that the system does not know changes nothing.
void set_option(int fd, int level, int name, int value);
// Small messages are not held back, and no call waits.
void send_at_once(int fd);
// The connection breaks when what was sent is not taken by the other host's system for so long.
// That of a process which is only frozen takes it, but no more than it has room for.
void break_when_unanswered(int fd, std::chrono::milliseconds silence);
// The same for one that carries little: the system asks by itself whether the other host is there.
// (One that carries much would break as well when its reader is just slow to read.)
void break_when_silent(int fd, std::chrono::milliseconds silence);

// What the system has heard of the other host on a connection.
struct Heard {
  std::chrono::milliseconds ago;  // since it last acknowledged anything, or sent something new
  bool awaited;                   // it has something to acknowledge
};
// None where there is no connection any more.
std::optional<Heard> heard_on(int fd);
// Lets ask_host() work on a connection.
void let_ask(int fd);
// Has the system ask the other host at once whether it is there. That of a process which is only
// frozen answers. Does nothing where it was heard within kNoQuestion, or has something to
// acknowledge.
void ask_host(int fd);
inline constexpr std::chrono::milliseconds kNoQuestion{1000};

// For one that carries little: what was lost is sent again every fraction of a second, so that an
// outage is over when the network is back, rather than ever more rarely.
void repeat_often(int fd);

// Whether a call that failed so on a socket that does not block is to be made again later.
bool would_block(int error);
// "Connection refused".
std::string error_text(int error);

}  // namespace cohort::net
