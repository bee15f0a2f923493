#include "strategies/coordinator/cut_messages.h"

#include <algorithm>
#include <utility>
#include <variant>

namespace cohort::coordinator {

size_t bytes_of(const Command& command) {
  if (const auto* run = std::get_if<Run>(&command)) return bytes_of(run->arguments);
  if (const auto* define = std::get_if<Define>(&command)) return bytes_of(define->graphs);
  const auto* create = std::get_if<Create>(&command);
  if (create == nullptr) return 0;
  if (const auto* variable = std::get_if<CreateVariable>(&create->what))
    return variable->value.bytes();
  const auto* run = std::get_if<Run>(&create->what);
  return run == nullptr ? 0 : bytes_of(run->arguments);
}

std::vector<ToWorker> cut_commands(std::vector<Command> commands, size_t max_bytes) {
  std::vector<ToWorker> messages;
  size_t bytes = 0;
  for (Command& command : commands) {
    const size_t more = bytes_of(command);
    if (messages.empty() || more > max_bytes - std::min(max_bytes, bytes)) {
      messages.emplace_back();
      bytes = 0;
    }
    bytes += more;
    messages.back().commands.push_back(std::move(command));
  }
  return messages;
}

std::vector<FromWorker> cut_answers(FromWorker answers, size_t max_bytes) {
  std::vector<Result> results = std::exchange(answers.results, {});
  const uint64_t busy_us = std::exchange(answers.busy_us, 0);
  std::vector<FromWorker> messages;
  messages.push_back(std::move(answers));
  size_t bytes = 0;
  for (Result& result : results) {
    const size_t more = bytes_of(result.values);
    if (more > max_bytes - std::min(max_bytes, bytes)) {
      messages.emplace_back();
      bytes = 0;
    }
    bytes += more;
    messages.back().results.push_back(std::move(result));
  }
  for (FromWorker& message : messages)
    if (!results.empty()) message.busy_us = busy_us * message.results.size() / results.size();
  return messages;
}

}  // namespace cohort::coordinator
