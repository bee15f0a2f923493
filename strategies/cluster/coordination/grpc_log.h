#pragma once

namespace cohort::coordination {

// gRPC prints a line for each handshake that fails, and whoever can reach a port can make them fail
// as often as he likes. From now on, in all of this process, errors of one place in gRPC's code are
// one line in a minute, printable() as a stranger may have sent some of it, which also says how
// many there were that nobody was told of. It sets gRPC's
// log function (gpr_set_log_function), which is one for the process and cannot be asked for:
// whoever sets another afterwards has that. The library does this before main(), or while it is
// loaded by dlopen(): a host of such a plug-in sets its own function after that, or once more.
void limit_grpc_errors();

}  // namespace cohort::coordination
