#pragma once

#include <string>

namespace cohort::net {

// Who listens on a TCP port of this host: "process 123 (python3)". "" where nobody does, and where
// the system does not tell: of other users' processes, or those of another container.
std::string port_holder(int port);

// For errors: "port 2222 is in use, by ...", with who has it where that is known.
std::string port_in_use(int port);

}  // namespace cohort::net
