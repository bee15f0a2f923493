#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <sys/types.h>
#include <sys/uio.h>
#include <vector>

#include "strategies/cluster/net/descriptor.h"
#include "strategies/cluster/net/tls_identity.h"

namespace cohort::net {

// A connected TCP socket: bytes in both directions without waiting, as they are or by TLS 1.3, in
// which both ends show certificates. One thread at a time. What goes wrong is told in words that
// follow the name of the other end: "has closed the connection".
//
// The end of a connection is not sealed: who needs to know that nothing is missing says so himself.
class Stream {
 public:
  enum class End { kCaller, kCalled };

  // Of no connection.
  Stream();
  // In plain text.
  explicit Stream(Descriptor socket);
  // By TLS, once shake_hands() has said so; nothing may be read or written before.
  Stream(Descriptor socket, const TlsIdentity& identity, End own);
  Stream(Stream&& other) noexcept;
  Stream& operator=(Stream&& other) noexcept;
  ~Stream();

  int fd() const { return socket_.get(); }
  explicit operator bool() const { return static_cast<bool>(socket_); }
  bool encrypted() const { return tls_ != nullptr; }
  // Closes it.
  void reset();

  // Does what can be done of the handshake now; true once nothing is left of it, which is at once
  // in plain text. kPermissionDenied for a certificate that one of the ends does not accept,
  // kFailedPrecondition where the other end speaks plain text or another version of TLS, kDataLoss
  // for what is no handshake; kUnavailable for a connection that has ended.
  bool shake_hands();
  // After it: the URIs among the subject alternative names of the other end's certificate.
  std::vector<std::string> peer_uris() const;
  // And whether the certificate carries this host name or address.
  bool peer_is_named(const std::string& name) const;

  // The events of poll(2) to wait for.
  short events() const;
  // As recvmsg(2) and sendmsg(2): how many bytes were moved, 0 when the other end has closed the
  // connection, or -1 with errno.
  ssize_t read(std::span<const iovec> pieces);
  ssize_t write(std::span<const iovec> pieces);
  // Whether some of what was written is not with the system yet, and sends it: how many bytes of
  // it, or -1 with errno.
  bool has_unsent() const;
  ssize_t flush();
  // What errno means after one of these: "cannot be reached: Connection reset by peer".
  std::string failure(int error) const;

 private:
  struct Tls;

  Descriptor socket_;
  std::unique_ptr<Tls> tls_;
  bool fresh_ = true;  // nothing has been read
};

}  // namespace cohort::net
