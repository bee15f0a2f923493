#include "strategies/cluster/net/stream.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <poll.h>
#include <string_view>
#include <sys/socket.h>

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include "core/base/error.h"
#include "strategies/cluster/net/socket.h"
#include "strategies/cluster/net/tls_variables.h"

namespace cohort::net {
namespace {

constexpr size_t kRecord = SSL3_RT_MAX_PLAIN_LENGTH;
// What is encrypted before it goes to the system: large enough for few calls, small enough for the
// cache.
constexpr size_t kBatch = 8 * kRecord;
// RFC 8446 5.5: with AES-GCM, a key is safe for some 2^38 bytes.
constexpr size_t kBytesPerKey = size_t{1} << 30;
// A fatal alert, protocol_version, for an end that has begun to shake hands.
constexpr char kSpeaksNoTls[] = {SSL3_RT_ALERT, 3, 3, 0, 2, SSL3_AL_FATAL, SSL_AD_PROTOCOL_VERSION};

// Whether these are the first bytes of a TLS connection; one is enough to say no.
bool begins_tls(std::string_view bytes) {
  return (bytes[0] == SSL3_RT_HANDSHAKE || bytes[0] == SSL3_RT_ALERT) &&
         (bytes.size() < 2 || bytes[1] == SSL3_VERSION_MAJOR);
}

std::string closed_or(int error) {
  return error == 0 ? "has closed its connection" : "cannot be reached: " + error_text(error);
}

// What OpenSSL talks to: a socket, and memory in front of it for what is to be sent.
struct Wire {
  int fd;
  std::vector<char> unsent;
  size_t sent = 0;
  std::string first;  // bytes read
  bool ended = false;
  int error = 0;

  bool is_plain() const { return !first.empty() && !begins_tls(first); }

  ssize_t flush() {
    const size_t before = sent;
    while (sent < unsent.size()) {
      const ssize_t size =
          send(fd, unsent.data() + sent, unsent.size() - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
      if (size < 0 && sent == before) return -1;
      if (size < 0) return static_cast<ssize_t>(sent - before);
      sent += static_cast<size_t>(size);
    }
    const size_t all = sent - before;
    unsent.clear();
    sent = 0;
    return static_cast<ssize_t>(all);
  }
};

Wire& wire_of(BIO* bio) { return *static_cast<Wire*>(BIO_get_data(bio)); }

int wire_write(BIO* bio, const char* data, int size) {
  auto& unsent = wire_of(bio).unsent;
  unsent.insert(unsent.end(), data, data + size);
  return size;
}

int wire_read(BIO* bio, char* data, int size) {
  Wire& wire = wire_of(bio);
  BIO_clear_retry_flags(bio);
  const ssize_t got = recv(wire.fd, data, static_cast<size_t>(size), MSG_DONTWAIT);
  if (got > 0 && wire.first.empty())
    wire.first.assign(data, static_cast<size_t>(std::min<ssize_t>(got, 2)));
  if (got == 0) wire.ended = true;
  if (got < 0 && would_block(errno))
    BIO_set_retry_read(bio);
  else if (got < 0)
    wire.error = errno;
  return static_cast<int>(got);
}

long wire_control(BIO* /*bio*/, int command, long /*number*/, void* /*pointer*/) {
  return command == BIO_CTRL_FLUSH ? 1 : 0;
}

BIO* new_bio(Wire& wire) {
  static const BIO_METHOD* const method = [] {
    BIO_METHOD* const made =
        BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "cohort wire");
    BIO_meth_set_write(made, wire_write);
    BIO_meth_set_read(made, wire_read);
    BIO_meth_set_ctrl(made, wire_control);
    return made;
  }();
  BIO* const bio = BIO_new(method);
  BIO_set_data(bio, &wire);
  BIO_set_init(bio, 1);
  return bio;
}

// Of a certificate that is not accepted.
std::string verdict_text(long verdict) {
  switch (verdict) {
    case X509_V_ERR_CERT_HAS_EXPIRED:
      return "has expired";
    case X509_V_ERR_CERT_NOT_YET_VALID:
      return "is not valid yet";
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT:
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY:
    case X509_V_ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE:
    case X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT:
    case X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN:
    case X509_V_ERR_CERT_SIGNATURE_FAILURE:
      return "is signed by an unknown authority";
    default:
      return str("is not accepted: ", X509_verify_cert_error_string(verdict));
  }
}

// Of what the other end says before it closes the connection.
Error alert(int number) {
  switch (number) {
    case SSL_AD_PROTOCOL_VERSION:
      return Error(Code::kFailedPrecondition,
                   str("speaks plain text, as without certificates ", kTlsVariables,
                       ", or another version of TLS than 1.3"));
    case SSL_AD_UNKNOWN_CA:
      return Error(Code::kPermissionDenied,
                   "does not know the authority of this end's certificate");
    case SSL_AD_CERTIFICATE_EXPIRED:
      return Error(Code::kPermissionDenied, "says that this end's certificate has expired");
    case SSL_AD_BAD_CERTIFICATE:
    case SSL_AD_UNSUPPORTED_CERTIFICATE:
    case SSL_AD_CERTIFICATE_REVOKED:
    case SSL_AD_CERTIFICATE_UNKNOWN:
    case SSL_AD_DECRYPT_ERROR:
    case SSL_AD_ACCESS_DENIED:
    case SSL_AD_CERTIFICATE_REQUIRED:
      return Error(Code::kPermissionDenied, str("does not accept this end's certificate: ",
                                                SSL_alert_desc_string_long(number)));
    default:
      return Error(Code::kDataLoss, str("has ended TLS: ", SSL_alert_desc_string_long(number)));
  }
}

}  // namespace

struct Stream::Tls {
  Tls(int fd, const TlsIdentity& identity, End own)
      : wire{.fd = fd}, session(SSL_new(static_cast<SSL_CTX*>(identity.context()))) {
    if (session == nullptr) fail(Code::kResourceExhausted, "OpenSSL makes no connection for TLS");
    BIO* const bio = new_bio(wire);
    SSL_set_bio(session, bio, bio);
    if (own == End::kCaller)
      SSL_set_connect_state(session);
    else
      SSL_set_accept_state(session);
  }
  ~Tls() { SSL_free(session); }
  Tls(const Tls&) = delete;
  Tls& operator=(const Tls&) = delete;

  // Why a call of OpenSSL has failed that does not just wait for bytes.
  Error why() const {
    const unsigned long error = ERR_peek_error();
    const long verdict = SSL_get_verify_result(session);
    const int reason = ERR_GET_LIB(error) == ERR_LIB_SSL ? ERR_GET_REASON(error) : 0;
    if (wire.is_plain())
      return Error(Code::kFailedPrecondition,
                   str("speaks plain text, but this end has certificates ", kTlsVariables));
    if (verdict != X509_V_OK)
      return Error(Code::kPermissionDenied, "shows a certificate that " + verdict_text(verdict));
    if (reason == SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE)
      return Error(Code::kPermissionDenied, "shows no certificate");
    if (reason > SSL_AD_REASON_OFFSET) return alert(reason - SSL_AD_REASON_OFFSET);
    if (wire.ended || wire.error != 0) return Error(Code::kUnavailable, closed_or(wire.error));
    const char* const text = ERR_reason_error_string(error);
    return Error(Code::kDataLoss,
                 str("has sent what is not right in TLS: ", text ? text : "unknown"));
  }

  // Makes records of bytes.
  bool seal(const void* data, size_t size) {
    if ((sealed += size) > kBytesPerKey) {
      SSL_key_update(session, SSL_KEY_UPDATE_NOT_REQUESTED);
      sealed = size;
    }
    size_t written = 0;
    ERR_clear_error();
    return SSL_write_ex(session, data, size, &written) == 1;
  }

  // A batch of `pieces` as records, of which as many as possible are full; its size, or none.
  size_t seal(std::span<const iovec> pieces) {
    size_t all = 0, staged = 0;
    for (const iovec& piece : pieces) {
      const char* at = static_cast<const char*>(piece.iov_base);
      size_t left = std::min(piece.iov_len, kBatch - all);
      all += left;
      while (left > 0) {
        const bool direct = staged == 0 && left >= kRecord;
        const size_t size = direct ? left / kRecord * kRecord : std::min(left, kRecord - staged);
        if (direct) {
          if (!seal(at, size)) return 0;
        } else {
          std::memcpy(staging.data() + staged, at, size);
          staged += size;
          if (staged == kRecord && !seal(staging.data(), std::exchange(staged, 0))) return 0;
        }
        at += size;
        left -= size;
      }
    }
    return staged == 0 || seal(staging.data(), staged) ? all : 0;
  }

  // As Stream's; EPROTO where `broken` tells the reason.
  ssize_t read(std::span<const iovec> pieces) {
    size_t all = 0;
    for (const iovec& piece : pieces) {
      for (size_t at = 0; at < piece.iov_len;) {
        size_t got = 0;
        ERR_clear_error();
        if (SSL_read_ex(session, static_cast<char*>(piece.iov_base) + at, piece.iov_len - at,
                        &got) != 1) {
          const ssize_t result = nothing_read();
          return all > 0 ? static_cast<ssize_t>(all) : result;
        }
        at += got;
        all += got;
      }
    }
    return static_cast<ssize_t>(all);
  }

  ssize_t nothing_read() {
    const int what = SSL_get_error(session, 0);
    if (what == SSL_ERROR_ZERO_RETURN || wire.ended) return 0;
    if (what != SSL_ERROR_WANT_READ && wire.error == 0 && broken.empty()) broken = why().message();
    errno = !broken.empty() ? EPROTO : wire.error != 0 ? wire.error : EAGAIN;
    return -1;
  }

  Wire wire;
  SSL* const session;
  bool established = false;
  std::string broken;  // why nothing more can be read or written
  size_t sealed = 0;   // with this key
  std::vector<char> staging = std::vector<char>(kRecord);
};

Stream::Stream() = default;
Stream::Stream(Descriptor socket) : socket_(std::move(socket)) {}
Stream::Stream(Descriptor socket, const TlsIdentity& identity, End own)
    : socket_(std::move(socket)), tls_(std::make_unique<Tls>(fd(), identity, own)) {}
Stream::Stream(Stream&&) noexcept = default;
Stream& Stream::operator=(Stream&&) noexcept = default;
Stream::~Stream() = default;

void Stream::reset() { *this = Stream(); }

bool Stream::shake_hands() {
  if (tls_ == nullptr || tls_->established) return true;
  ERR_clear_error();
  const int result = SSL_do_handshake(tls_->session);
  const bool waits = SSL_get_error(tls_->session, result) == SSL_ERROR_WANT_READ;
  tls_->wire.flush();  // a failure of it is one of reading, too, after what has still come
  if (result == 1) return tls_->established = true;
  if (waits && !tls_->wire.is_plain()) return false;
  const Error error = tls_->why();
  if (error.code() == Code::kFailedPrecondition && !has_unsent())
    send(fd(), kSpeaksNoTls, sizeof kSpeaksNoTls, MSG_NOSIGNAL | MSG_DONTWAIT);
  ERR_clear_error();
  throw error;
}

std::vector<std::string> Stream::peer_uris() const {
  std::vector<std::string> uris;
  X509* const certificate = tls_ ? SSL_get0_peer_certificate(tls_->session) : nullptr;
  if (certificate == nullptr) return uris;
  const std::unique_ptr<GENERAL_NAMES, decltype(&GENERAL_NAMES_free)> names(
      static_cast<GENERAL_NAMES*>(
          X509_get_ext_d2i(certificate, NID_subject_alt_name, nullptr, nullptr)),
      GENERAL_NAMES_free);
  for (int i = 0; names && i < sk_GENERAL_NAME_num(names.get()); ++i) {
    const GENERAL_NAME* const name = sk_GENERAL_NAME_value(names.get(), i);
    if (name->type != GEN_URI) continue;
    const ASN1_STRING* const uri = name->d.uniformResourceIdentifier;
    uris.emplace_back(reinterpret_cast<const char*>(ASN1_STRING_get0_data(uri)),
                      static_cast<size_t>(ASN1_STRING_length(uri)));
  }
  return uris;
}

bool Stream::peer_is_named(const std::string& name) const {
  X509* const certificate = tls_ ? SSL_get0_peer_certificate(tls_->session) : nullptr;
  // A zone is the affair of one host.
  const std::string shown = name.substr(0, name.find('%'));
  const bool is = certificate != nullptr &&
                  (X509_check_ip_asc(certificate, shown.c_str(), 0) == 1 ||
                   X509_check_host(certificate, shown.data(), shown.size(),
                                   X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS, nullptr) == 1);
  ERR_clear_error();
  return is;
}

short Stream::events() const { return static_cast<short>(POLLIN | (has_unsent() ? POLLOUT : 0)); }

ssize_t Stream::read(std::span<const iovec> pieces) {
  if (tls_ == nullptr) {
    msghdr message{};
    message.msg_iov = const_cast<iovec*>(pieces.data());
    message.msg_iovlen = pieces.size();
    const ssize_t got = recvmsg(fd(), &message, MSG_DONTWAIT);
    if (got <= 0 || !fresh_) return got;
    fresh_ = false;
    const auto bytes = std::min(static_cast<size_t>(got), pieces[0].iov_len);
    if (!begins_tls({static_cast<const char*>(pieces[0].iov_base), bytes})) return got;
    send(fd(), kSpeaksNoTls, sizeof kSpeaksNoTls, MSG_NOSIGNAL | MSG_DONTWAIT);
    errno = EPROTO;
    return -1;
  }
  const ssize_t got = tls_->read(pieces);
  ERR_clear_error();
  return got;
}

ssize_t Stream::write(std::span<const iovec> pieces) {
  if (tls_ == nullptr) {
    msghdr message{};
    message.msg_iov = const_cast<iovec*>(pieces.data());
    message.msg_iovlen = pieces.size();
    return sendmsg(fd(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  }
  if (tls_->wire.flush() < 0) return -1;
  if (has_unsent()) {
    errno = EAGAIN;
    return -1;
  }
  const size_t sealed = tls_->seal(pieces);
  if (sealed == 0) {
    if (tls_->broken.empty()) tls_->broken = tls_->why().message();
    ERR_clear_error();
    errno = EPROTO;
    return -1;
  }
  tls_->wire.flush();
  return static_cast<ssize_t>(sealed);
}

bool Stream::has_unsent() const { return tls_ != nullptr && !tls_->wire.unsent.empty(); }

ssize_t Stream::flush() { return tls_ == nullptr ? 0 : tls_->wire.flush(); }

std::string Stream::failure(int error) const {
  if (error != EPROTO) return closed_or(error);
  return tls_ ? tls_->broken : str("speaks TLS, but this end has no certificates ", kTlsVariables);
}

}  // namespace cohort::net
