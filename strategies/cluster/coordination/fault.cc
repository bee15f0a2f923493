#include "strategies/cluster/coordination/fault.h"

#include "proto/coordination.pb.h"
#include "strategies/cluster/coordination/limits.h"

namespace cohort::coordination {

void write_fault(const Error& error, proto::Fault* fault) {
  fault->set_code(static_cast<int>(error.code()));
  fault->set_message(error.message().substr(0, kMaxErrorBytes));
  fault->set_peer(error.peer().substr(0, kMaxErrorBytes));
}

Error read_fault(const proto::Fault& fault) {
  return Error(code_of(fault.code()), fault.message().substr(0, kMaxErrorBytes),
               fault.peer().substr(0, kMaxErrorBytes));
}

}  // namespace cohort::coordination
