#pragma once

#include <string>

namespace cohort::coordination {

// The content of a PEM file, and what to call the file in an error.
struct Pem {
  std::string content, name;
};

// Tells at once what a handshake would only hint at: kInvalidArgument for a certificate, a key or
// an authority that cannot be read, for a key that is not the certificate's, and for a certificate
// that has expired or is not valid yet.
void check_certificates(const Pem& certificate, const Pem& key, const Pem& authority);

}  // namespace cohort::coordination
