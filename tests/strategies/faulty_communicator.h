#pragma once

#include <atomic>
#include <memory>
#include <utility>

#include "core/collective/forwarding_communicator.h"

namespace cohort::testing {

struct Fault {
  enum Kind { kNotStarted, kLost } kind;  // at the start of a bucket, or with its result
  int bucket;                             // of all, from the first step on
};

// Has a fault, once.
class FaultyCommunicator final : public ForwardingCommunicator {
 public:
  struct Count {
    std::atomic<int> starts = 0, waits = 0;
  };
  FaultyCommunicator(std::unique_ptr<Communicator> inner, const Fault& fault, Count& count)
      : ForwardingCommunicator(std::move(inner)), fault_(fault), count_(count) {}

  int64_t start(const Call& call) override {
    if (count_.starts++ == fault_.bucket && fault_.kind == Fault::kNotStarted)
      fail(Code::kDeadlineExceeded, "a bucket is not there");
    return inner().start(call);
  }
  Received wait(int64_t operation) override {
    const Received received = inner().wait(operation);
    if (count_.waits++ == fault_.bucket && fault_.kind == Fault::kLost)
      fail(Code::kDeadlineExceeded, "a result does not come");
    return received;
  }

 private:
  const Fault fault_;
  Count& count_;
};

}  // namespace cohort::testing
