#include "core/base/own_process.h"

#include <pthread.h>

#include "core/base/error.h"

namespace cohort {
namespace {

int forks_before = 0;
[[maybe_unused]] const int kCounted = pthread_atfork(nullptr, nullptr, [] { ++forks_before; });

}  // namespace

int OwnProcess::forks() { return forks_before; }

void OwnProcess::refuse(const char* what) {
  fail(Code::kFailedPrecondition, "this is a fork of the process that has made ", what,
       ", which that process alone can use: fork before it is made, or execute a program");
}

}  // namespace cohort
