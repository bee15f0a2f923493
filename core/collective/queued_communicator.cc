#include "core/collective/queued_communicator.h"

namespace cohort {

void QueuedCommunicator::run(const Call& call) {
  queue_->drain();
  run_now(call);
}

int64_t QueuedCommunicator::start(const Call& call) {
  return size() > 1 ? queue_->start(call) : queue_->start_alone(call);
}

int64_t QueuedCommunicator::start_send(const SendCall& call) {
  check_send(call, rank(), size());
  return kMessage + post(call);
}

int64_t QueuedCommunicator::start_receive(const ReceiveCall& call) {
  check_receive(call, rank(), size());
  return kMessage + post(call);
}

Received QueuedCommunicator::wait(int64_t operation) {
  if (operation >= kMessage) return wait_for_message(operation - kMessage);
  queue_->wait(operation);
  return {};
}

bool QueuedCommunicator::is_done(int64_t operation) {
  if (operation >= kMessage) return is_message_done(operation - kMessage);
  return queue_->is_done(operation);
}

void QueuedCommunicator::observe(const Call& call,
                                 std::chrono::steady_clock::time_point begin) const {
  const int64_t bytes = bytes_of(call);
  if (observer_ && bytes > 0)
    observer_({kind_of(call), bytes, begin, std::chrono::steady_clock::now()});
}

}  // namespace cohort
