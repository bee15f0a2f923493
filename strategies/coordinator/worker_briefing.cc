#include "strategies/coordinator/worker_briefing.h"

#include <utility>

#include "strategies/coordinator/present_error.h"

namespace cohort::coordinator {

void WorkerBriefing::begin() {
  defined_.clear();
  last_resource_ = 0;
  resources_.begin(worker_);
}

void WorkerBriefing::add_definition(const std::shared_ptr<const Definition>& definition,
                                    ToWorker& message) {
  if (!defined_.insert(definition.get()).second) return;
  message.commands.push_back(Define{.function = definition->function,
                                    .signature = definition->signature,
                                    .graphs = definition->graphs,
                                    .error = {},
                                    .server_variables = definition->server_variables,
                                    .precision = definition->precision});
}

void WorkerBriefing::add_news(ToWorker& message) {
  const ResourceTable::News news = resources_.news(worker_, last_resource_);
  for (const auto& spec : news.created) {
    if (spec->definition) add_definition(spec->definition, message);
    message.commands.push_back(spec->create);
    last_resource_ = spec->create.resource;
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
