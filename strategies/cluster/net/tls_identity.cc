#include "strategies/cluster/net/tls_identity.h"

#include <vector>

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

#include "core/base/error.h"

namespace cohort::net {
namespace {

template <auto Free>
struct Freeing {
  template <typename T>
  void operator()(T* object) const {
    Free(object);
  }
};
using Bio = std::unique_ptr<BIO, Freeing<BIO_free_all>>;
using Certificate = std::unique_ptr<X509, Freeing<X509_free>>;
using Key = std::unique_ptr<EVP_PKEY, Freeing<EVP_PKEY_free>>;
using Verification = std::unique_ptr<X509_STORE_CTX, Freeing<X509_STORE_CTX_free>>;

// What is read from the system at once: four records and their headers.
constexpr size_t kReadBuffer = 4 * (SSL3_RT_MAX_PLAIN_LENGTH + 256);

Bio reader(const Pem& pem) {
  return Bio(BIO_new_mem_buf(pem.content.data(), static_cast<int>(pem.content.size())));
}

// No password: nobody is there to type one.
int no_password(char*, int, int, void*) { return -1; }

// At least one.
std::vector<Certificate> read_certificates(const Pem& pem) {
  const Bio from = reader(pem);
  std::vector<Certificate> all;
  while (X509* next = PEM_read_bio_X509(from.get(), nullptr, no_password, nullptr))
    all.emplace_back(next);
  ERR_clear_error();
  if (all.empty()) invalid(pem.name, " holds no certificate that can be read");
  return all;
}

Key read_key(const Pem& pem) {
  Key key(PEM_read_bio_PrivateKey(reader(pem).get(), nullptr, no_password, nullptr));
  ERR_clear_error();
  if (!key) invalid(pem.name, " holds no private key that can be read without a password");
  return key;
}

std::string text(const ASN1_TIME* time) {
  const Bio out(BIO_new(BIO_s_mem()));
  ASN1_TIME_print(out.get(), time);
  char* data = nullptr;
  const long size = BIO_get_mem_data(out.get(), &data);
  return std::string(data, static_cast<size_t>(size));
}

void check_dates(const X509* certificate, const std::string& name) {
  const ASN1_TIME* begin = X509_get0_notBefore(certificate);
  const ASN1_TIME* end = X509_get0_notAfter(certificate);
  if (X509_cmp_current_time(end) < 0) invalid(name, " has expired: valid until ", text(end));
  if (X509_cmp_current_time(begin) > 0) invalid(name, " is valid only from ", text(begin));
}

std::shared_ptr<void> new_context() {
  SSL_CTX* const context = SSL_CTX_new(TLS_method());
  if (context == nullptr) fail(Code::kResourceExhausted, "OpenSSL makes no context for TLS");
  std::shared_ptr<void> owner(context, [](void* p) { SSL_CTX_free(static_cast<SSL_CTX*>(p)); });
  SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION);
  SSL_CTX_set_max_proto_version(context, TLS1_3_VERSION);
  // Those of 128 bits are as safe here, and quicker.
  SSL_CTX_set_ciphersuites(context,
                           "TLS_AES_128_GCM_SHA256:TLS_AES_256_GCM_SHA384:"
                           "TLS_CHACHA20_POLY1305_SHA256");
  SSL_CTX_set_verify(context, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
  // Nobody comes back with a session.
  SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_num_tickets(context, 0);
  SSL_CTX_set_read_ahead(context, 1);
  SSL_CTX_set_default_read_buffer_len(context, kReadBuffer);
  // As gRPC does: an authority need not be a root.
  X509_STORE_set_flags(SSL_CTX_get_cert_store(context), X509_V_FLAG_PARTIAL_CHAIN);
  return owner;
}

// As peers will check the certificate that `context` shows, by the authorities that it has; but for
// dates, which have been looked at.
void check_signed(SSL_CTX* context, const Pem& certificate, const Pem& authority) {
  const Verification check(X509_STORE_CTX_new());
  STACK_OF(X509)* others = nullptr;
  SSL_CTX_get0_chain_certs(context, &others);
  if (!check || X509_STORE_CTX_init(check.get(), SSL_CTX_get_cert_store(context),
                                    SSL_CTX_get0_certificate(context), others) != 1)
    fail(Code::kResourceExhausted, "OpenSSL has no memory to check ", certificate.name);
  X509_STORE_CTX_set_flags(check.get(), X509_V_FLAG_NO_CHECK_TIME);
  const bool is_signed = X509_verify_cert(check.get()) == 1;
  ERR_clear_error();
  if (!is_signed)
    invalid("the certificate in ", certificate.name, " is not signed by an authority in ",
            authority.name, ": ",
            X509_verify_cert_error_string(X509_STORE_CTX_get_error(check.get())));
}

}  // namespace

TlsIdentity::TlsIdentity(const Pem& certificate, const Pem& key, const Pem& authority)
    : context_(new_context()) {
  auto* const context = static_cast<SSL_CTX*>(this->context());
  const std::vector<Certificate> chain = read_certificates(certificate);
  check_dates(chain[0].get(), certificate.name);
  const std::vector<Certificate> authorities = read_certificates(authority);
  check_dates(authorities[0].get(), authority.name);
  const Key own = read_key(key);
  const bool fits = X509_check_private_key(chain[0].get(), own.get()) == 1;
  ERR_clear_error();
  if (!fits)
    invalid("the key in ", key.name, " does not belong to the certificate in ", certificate.name);

  bool taken = SSL_CTX_use_certificate(context, chain[0].get()) == 1 &&
               SSL_CTX_use_PrivateKey(context, own.get()) == 1;
  for (size_t i = 1; i < chain.size(); ++i)
    taken = taken && SSL_CTX_add1_chain_cert(context, chain[i].get()) == 1;
  for (const Certificate& one : authorities)
    taken = taken && X509_STORE_add_cert(SSL_CTX_get_cert_store(context), one.get()) == 1;
  const char* const why = ERR_reason_error_string(ERR_peek_last_error());
  ERR_clear_error();
  if (!taken)
    invalid("OpenSSL does not take the certificate in ", certificate.name, ": ", why ? why : "");
  check_signed(context, certificate, authority);
}

}  // namespace cohort::net
