#include "strategies/process_group.h"

#include <exception>
#include <new>
#include <optional>
#include <utility>

#include "core/base/error.h"
#include "core/base/notice.h"
#include "core/base/program.h"
#include "core/collective/forwarding_communicator.h"
#include "strategies/cluster/resolve_cluster.h"
#include "strategies/multi_worker/cluster_link.h"

namespace cohort::collective {
namespace {

using std::chrono::milliseconds;

// For those that come later to the end.
constexpr std::chrono::seconds kEndPatience(60);
// For the cause to be heard of where a peer cannot be reached any more.
constexpr milliseconds kCauseTimeout(1000);

// What the program has of a group, or of a part of it.
class OfProgram final : public ForwardingCommunicator {
  template <typename Work>
  auto noted(const Work& work) {
    try {
      return work();
    } catch (...) {
      *has_thrown_ = true;
      throw;
    }
  }

 public:
  OfProgram(std::unique_ptr<Communicator> group, std::shared_ptr<std::atomic<bool>> has_thrown)
      : ForwardingCommunicator(std::move(group)), has_thrown_(std::move(has_thrown)) {}

  // By which others than the program end it.
  Communicator& group() { return inner(); }

  void run(const Call& call) override {
    noted([&] { inner().run(call); });
  }
  int64_t start(const Call& call) override {
    return noted([&] { return inner().start(call); });
  }
  int64_t start_send(const SendCall& call) override {
    return noted([&] { return inner().start_send(call); });
  }
  int64_t start_receive(const ReceiveCall& call) override {
    return noted([&] { return inner().start_receive(call); });
  }
  Received wait(int64_t operation) override {
    return noted([&] { return inner().wait(operation); });
  }
  std::unique_ptr<Communicator> split(int color, int key) override {
    auto part = noted([&] { return inner().split(color, key); });
    if (part == nullptr) return nullptr;
    return std::make_unique<OfProgram>(std::move(part), has_thrown_);
  }
  void abort(const Error& error) override {
    *has_thrown_ = true;
    inner().abort(error);
  }

 private:
  const std::shared_ptr<std::atomic<bool>> has_thrown_;
};

std::shared_ptr<WorkerLink> join(const ProcessGroupOptions& options) {
  if (options.limit && options.limit->count() < 1)
    invalid("ProcessGroupOptions::limit is ", options.limit->count(),
            " ms; it has to be 1 or more, or left out");
  if (options.link != nullptr) return options.link;
  const auto resolver = options.resolver ? options.resolver : resolve_own_cluster();
  return join_cluster(*resolver, options.membership, options.backend);
}

}  // namespace

ProcessGroup::ProcessGroup(const ProcessGroupOptions& options)
    : link_(join(options)),
      is_beside_strategy_(options.link != nullptr),
      exceptions_(std::uncaught_exceptions()) {
  auto communicator = std::make_unique<OfProgram>(
      std::move(link_->connect("process group", 1, options.limit)[0]), has_thrown_);
  Communicator& group = communicator->group();
  communicator_ = std::move(communicator);
  watch_ = link_->on_failure([&group](const Error& error) { group.abort(error); });
}

ProcessGroup::~ProcessGroup() {
  if (!process_.is_this()) {
    // As of MultiWorkerMirroredStrategy; the communicator knows by itself.
    new (std::nothrow) auto(std::pair(link_, std::move(watch_)));
    return;
  }
  const bool throws = std::uncaught_exceptions() > exceptions_;
  // Else it learns here of what has ended the group.
  const bool program_knows = throws || *has_thrown_;
  try {
    if (throws)
      end_badly();
    else
      end_well(program_knows);
  } catch (const Error& error) {
    const Error end = error.with_context("the end of a process group");
    if (program_knows)
      print_notice(str("warning: ", end.what(), "\n"));
    else
      fail_at_exit(end);
  } catch (const std::exception& error) {  // there is no memory
    print_notice(str("warning: the end of a process group: ", error.what(), "\n"));
  }
}

void ProcessGroup::barrier(const std::string& name, milliseconds timeout) {
  try {
    link_->barrier(name, timeout);
  } catch (const Error&) {
    if (link_->failure(milliseconds(0))) *has_thrown_ = true;
    throw;
  }
}

void ProcessGroup::end_well(bool program_knows) {
  std::optional<Error> failure = link_->failure(milliseconds(0));
  try {
    // Who is in another call, a barrier too, waits for this process in vain.
    if (!failure) communicator_->run(BarrierCall{.purpose = "the end of the group"});
  } catch (const Error& error) {
    failure = link_->failure(error.code() == Code::kUnavailable ? kCauseTimeout : milliseconds(0));
    if (!failure) throw;
  }
  if (failure && (program_knows || is_beside_strategy_)) return;  // whose end tells of it
  if (failure) throw *failure;
  if (!is_beside_strategy_) link_->leave(kEndPatience);
}

void ProcessGroup::end_badly() {
  if (link_->failure(milliseconds(0))) return;
  const std::string self = link_->name(link_->rank());
  const Error end(Code::kAborted, str(self, " has ended because of an error of its own"), self);
  if (!is_beside_strategy_) link_->report(end);
  // Or others might see that it leaves before they hear why.
  communicator_->abort(end);
}

}  // namespace cohort::collective
