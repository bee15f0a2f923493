#pragma once

#include <memory>
#include <utility>

#include "core/collective/communicator.h"

namespace cohort {

// Hands every call on to another communicator: the base of those that add something to it.
class ForwardingCommunicator : public Communicator {
 public:
  explicit ForwardingCommunicator(std::unique_ptr<Communicator> inner) : inner_(std::move(inner)) {}

  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  void run(const Call& call) override { inner_->run(call); }
  int64_t start(const Call& call) override { return inner_->start(call); }
  int64_t start_send(const SendCall& call) override { return inner_->start_send(call); }
  int64_t start_receive(const ReceiveCall& call) override { return inner_->start_receive(call); }
  Received wait(int64_t operation) override { return inner_->wait(operation); }
  bool is_done(int64_t operation) override { return inner_->is_done(operation); }
  std::unique_ptr<Communicator> split(int color, int key) override {
    return inner_->split(color, key);
  }
  void abort(const Error& error) override { inner_->abort(error); }
  std::shared_ptr<Buffer> allocate(size_t bytes) override { return inner_->allocate(bytes); }
  DeviceCollectives* on_device() override { return inner_->on_device(); }
  void set_observer(const CommunicationObserver& observer) override {
    inner_->set_observer(observer);
  }

 protected:
  Communicator& inner() { return *inner_; }
  // Leaves it as it is for ever; nothing else may be called then.
  void forget_inner() { (void)inner_.release(); }

 private:
  std::unique_ptr<Communicator> inner_;
};

}  // namespace cohort
