#pragma once

#include <memory>
#include <string>

namespace cohort::net {

// The content of a PEM file, and what to call the file in an error.
struct Pem {
  std::string content, name;
};

// What this end of TLS connections shows of itself, and whose certificates it accepts. Copies share
// it. Thread-safe.
class TlsIdentity {
 public:
  // `certificate` may go on with those up to the authority; `authority` holds those of all who may
  // sign what others show. Tells at once what a handshake would only hint at: kInvalidArgument for
  // a certificate, a key or an authority that cannot be read, for a key that is not the
  // certificate's, for a certificate that has expired or is not valid yet, and for one that no
  // authority here has signed, which its peers, who have the same authorities, would not accept.
  TlsIdentity(const Pem& certificate, const Pem& key, const Pem& authority);

  // OpenSSL's SSL_CTX.
  void* context() const { return context_.get(); }

 private:
  std::shared_ptr<void> context_;
};

}  // namespace cohort::net
