#include "strategies/process_group.h"

#include <exception>

#include "core/base/error.h"
#include "core/base/notice.h"
#include "strategies/cluster/resolve_cluster.h"
#include "strategies/multi_worker/cluster_link.h"

namespace cohort::collective {
namespace {

// For those that come later to the end.
constexpr std::chrono::seconds kEndPatience(60);

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
      communicator_(std::move(link_->connect("process group", 1, options.limit)[0])),
      exceptions_(std::uncaught_exceptions()) {
  watch_ = link_->on_failure([this](const Error& error) { communicator_->abort(error); });
}

ProcessGroup::~ProcessGroup() {
  if (link_->failure(std::chrono::milliseconds(0))) return;
  try {
    const std::string self = link_->name(link_->rank());
    if (std::uncaught_exceptions() > exceptions_) {
      if (is_beside_strategy_) return;
      link_->report(
          Error(Code::kAborted, str(self, " has ended because of an error of its own"), self));
      return;
    }
    communicator_->barrier();  // who is in another call waits for this process in vain
    if (!is_beside_strategy_) link_->leave(kEndPatience);
  } catch (const std::exception& error) {
    print_notice(str("warning: the end of a process group: ", error.what(), "\n"));
  }
}

}  // namespace cohort::collective
