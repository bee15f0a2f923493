#include "strategies/coordinator/worker_briefing.h"

#include <utility>
#include <variant>

#include "strategies/coordinator/cut_messages.h"
#include "strategies/coordinator/name_on_workers.h"
#include "strategies/coordinator/present_error.h"

namespace cohort::coordinator {
namespace {

// A variable or a value; nothing is the matter with others.
std::string describe(const Create& create) {
  const auto* variable = std::get_if<CreateVariable>(&create.what);
  return variable != nullptr ? str("variable \"", own_name(variable->name), '"')
                             : str("the per-worker value of \"", create.function_name, '"');
}

}  // namespace

void WorkerBriefing::begin(size_t max_bytes) {
  max_bytes_ = max_bytes;
  defined_.clear();
  last_resource_ = 0;
  resources_.begin(worker_);
}

Error WorkerBriefing::excess(const std::string& what, size_t bytes) const {
  return {Code::kResourceExhausted,
          str(what, " is sent as ", bytes, " bytes, and ", task_, " takes ", max_bytes_,
              " at most (WorkerServerOptions::max_bytes)"),
          task_};
}

void WorkerBriefing::add_definition(const std::shared_ptr<const Definition>& definition,
                                    ToWorker& message) {
  if (!defined_.insert(definition.get()).second) return;
  Define define{.function = definition->function,
                .signature = definition->signature,
                .graphs = definition->graphs,
                .error = {},
                .server_variables = definition->server_variables,
                .precision = definition->precision};
  if (const size_t bytes = bytes_of(define.graphs); bytes > max_bytes_) {
    define.graphs.clear();
    define.error = excess("with its constants it", bytes);
  }
  message.commands.push_back(std::move(define));
}

void WorkerBriefing::add_resource(const ResourceSpec& spec, ToWorker& message) {
  Create create = spec.create;
  if (const size_t bytes = bytes_of(Command(create)); bytes > max_bytes_) throw excess("it", bytes);
  if (spec.definition) {
    const auto definition = spec.definition();
    std::get<Run>(create.what).function = definition->function;
    add_definition(definition, message);
  }
  message.commands.push_back(std::move(create));
}

void WorkerBriefing::add_news(ToWorker& message) {
  const ResourceTable::News news = resources_.news(worker_, last_resource_);
  for (const auto& spec : news.created) {
    last_resource_ = spec->create.resource;
    try {
      add_resource(*spec, message);
    } catch (...) {
      queue_.fail(present_error().with_context(describe(spec->create)));
    }
  }
  for (const uint64_t id : news.dropped) message.commands.push_back(Drop{id});
}

void WorkerBriefing::add_wanted(std::vector<Wanted> wanted, ToWorker& message) {
  for (Wanted& one : wanted) {
    try {
      const auto definition = one.function->definition(one.signature);
      defined_.erase(definition.get());  // it asks, so it has lost it
      add_news(message);                 // which may be variables that it uses
      add_definition(definition, message);
    } catch (...) {
      message.commands.push_back(Define{.function = one.function->id(),
                                        .signature = std::move(one.signature),
                                        .graphs = {},
                                        .error = present_error()});
    }
  }
}

}  // namespace cohort::coordinator
