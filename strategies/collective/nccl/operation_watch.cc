#include "strategies/collective/nccl/operation_watch.h"

#include <algorithm>

#include "core/base/start_threads.h"

namespace cohort {

OperationWatch::OperationWatch(Options options)
    : options_(std::move(options)), thread_(start_thread([this] { run(); })) {}

OperationWatch::~OperationWatch() { stop(); }

void OperationWatch::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void OperationWatch::add(std::string what, std::function<bool()> is_done,
                         std::function<bool()> has_begun) {
  Operation operation{std::move(what), std::move(is_done), std::move(has_begun)};
  if (operation.has_begun == nullptr) operation.begin = Clock::now();
  {
    const std::lock_guard lock(mutex_);
    operations_.push_back(std::move(operation));
  }
  changed_.notify_all();
}

void OperationWatch::fail(const Error& error) {
  {
    const std::lock_guard lock(mutex_);
    if (error_) return;
    error_ = error;
    operations_.clear();
  }
  options_.end(error);
}

void OperationWatch::fail_with_first(const Error& error) {
  fail(error);
  const std::lock_guard lock(mutex_);
  throw Error(*error_);
}

void OperationWatch::check() const {
  const std::lock_guard lock(mutex_);
  if (error_) throw *error_;
}

void OperationWatch::run() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    changed_.wait(lock, [&] { return stopping_ || !operations_.empty(); });
    if (stopping_) return;
    look(lock);
    changed_.wait_for(lock, options_.interval, [&] { return stopping_; });
  }
}

void OperationWatch::look(std::unique_lock<std::mutex>& lock) {
  std::erase_if(operations_, [](const Operation& operation) { return operation.is_done(); });
  note_begun();
  warn_of_stalled();
  std::optional<Error> error = options_.find_error();
  if (!error) error = find_overdue();
  if (!error) return;
  lock.unlock();
  fail(*error);
  lock.lock();
}

void OperationWatch::note_begun() {
  for (Operation& operation : operations_)
    if (!operation.begin && operation.has_begun()) operation.begin = Clock::now();
}

void OperationWatch::warn_of_stalled() {
  const auto now = Clock::now();
  for (Operation& operation : operations_) {
    if (operation.warned_of || !operation.begin || !options_.stall.is_due(now - *operation.begin))
      continue;
    operation.warned_of = true;
    options_.stall.say(options_.who, operation.what, "the other ranks");
  }
}

std::optional<Error> OperationWatch::find_overdue() const {
  if (!options_.limit) return std::nullopt;
  const auto now = Clock::now();
  const auto overdue = std::find_if(operations_.begin(), operations_.end(), [&](const auto& o) {
    return o.begin && now - *o.begin >= *options_.limit;
  });
  if (overdue == operations_.end()) return std::nullopt;
  return Error(Code::kDeadlineExceeded,
               str(options_.who, " has waited for ", options_.limit->count(), " ms in ",
                   overdue->what, " for the other ranks (timeout_seconds)"));
}

}  // namespace cohort
