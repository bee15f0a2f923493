#pragma once

#include "core/base/error.h"

namespace cohort::proto {
class Fault;
}  // namespace cohort::proto

namespace cohort::coordination {

// Errors as messages. Long texts are cut.
void write_fault(const Error& error, proto::Fault* fault);
Error read_fault(const proto::Fault& fault);

}  // namespace cohort::coordination
