#include "strategies/cluster/coordination/certificates.h"

#include <memory>

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

#include "core/base/error.h"

namespace cohort::coordination {
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

Bio reader(const Pem& pem) {
  return Bio(BIO_new_mem_buf(pem.content.data(), static_cast<int>(pem.content.size())));
}

// No password: nobody is there to type one.
int no_password(char*, int, int, void*) { return -1; }

Certificate read_certificate(const Pem& pem) {
  Certificate certificate(PEM_read_bio_X509(reader(pem).get(), nullptr, no_password, nullptr));
  ERR_clear_error();
  if (!certificate) invalid(pem.name, " holds no certificate that can be read");
  return certificate;
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

}  // namespace

void check_certificates(const Pem& certificate, const Pem& key, const Pem& authority) {
  const Certificate own = read_certificate(certificate);
  check_dates(own.get(), certificate.name);
  check_dates(read_certificate(authority).get(), authority.name);
  const bool fits = X509_check_private_key(own.get(), read_key(key).get()) == 1;
  ERR_clear_error();
  if (!fits)
    invalid("the key in ", key.name, " does not belong to the certificate in ", certificate.name);
}

}  // namespace cohort::coordination
