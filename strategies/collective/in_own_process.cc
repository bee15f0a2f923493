#include "strategies/collective/in_own_process.h"

#include <utility>

#include "core/base/own_process.h"
#include "core/collective/forwarding_communicator.h"

namespace cohort {
namespace {

class InOwnProcess final : public ForwardingCommunicator {
 public:
  using ForwardingCommunicator::ForwardingCommunicator;
  // In a fork, the threads to be waited for are not there, and the others are not to be told.
  ~InOwnProcess() override {
    if (!process_.is_this()) forget_inner();
  }

  void run(const Call& call) override { own().run(call); }
  int64_t start(const Call& call) override { return own().start(call); }
  int64_t start_send(const SendCall& call) override { return own().start_send(call); }
  int64_t start_receive(const ReceiveCall& call) override { return own().start_receive(call); }
  Received wait(int64_t operation) override { return own().wait(operation); }
  bool is_done(int64_t operation) override { return own().is_done(operation); }
  std::unique_ptr<Communicator> split(int color, int key) override {
    auto part = own().split(color, key);
    return part == nullptr ? nullptr : std::make_unique<InOwnProcess>(std::move(part));
  }
  void abort(const Error& error) override {
    if (process_.is_this()) inner().abort(error);
  }

 private:
  Communicator& own() {
    process_.check("this group of ranks");
    return inner();
  }

  const OwnProcess process_;
};

}  // namespace

std::vector<std::unique_ptr<Communicator>> in_own_process(
    std::vector<std::unique_ptr<Communicator>> ranks) {
  for (auto& rank : ranks) rank = std::make_unique<InOwnProcess>(std::move(rank));
  return ranks;
}

}  // namespace cohort
