#include "strategies/collective/hierarchical/group_end.h"

#include <charconv>
#include <string>

namespace cohort::hierarchical {
namespace {

// How long ranks go on with what they were about to finish when the group ended: far longer than it
// takes those that are alive.
constexpr std::chrono::seconds kPatience{10};
// The same when the application has ended it, as when one of them is lost.
constexpr std::chrono::milliseconds kAbortedPatience{200};

// An error with the number of the last call that is finished in spite of it, in front of its
// message. One without comes from the control communicator itself, which has lost a rank.
struct Ending {
  Error error;
  uint64_t finish;
};

Error encode(const Ending& ending) {
  return Error(ending.error.code(), str(ending.finish, '\n', ending.error.message()),
               ending.error.peer());
}

Ending decode(const Error& error) {
  const std::string& text = error.message();
  uint64_t finish = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), finish);
  if (failure != std::errc() || end == text.data() + text.size() || *end != '\n') return {error, 0};
  return {Error(error.code(), std::string(end + 1, text.data() + text.size()), error.peer()),
          finish};
}

}  // namespace

GroupEnd::GroupEnd(std::unique_ptr<Communicator> control, std::function<void(const Error&)> stop)
    : control_(std::move(control)), stop_(std::move(stop)), listener_([this] { listen(); }) {}

GroupEnd::~GroupEnd() {
  end(Error(Code::kUnavailable, str("rank ", control_->rank(), " has left its group"),
            str("rank ", control_->rank())));
  listener_.join();
}

void GroupEnd::begin_call() {
  const std::lock_guard lock(mutex_);
  if (error_) throw *error_;
  ++call_;
  calling_ = true;
}

void GroupEnd::set_joined() {
  const std::lock_guard lock(mutex_);
  joined_ = call_;
}

void GroupEnd::finish_call() {
  {
    const std::lock_guard lock(mutex_);
    calling_ = false;
  }
  changed_.notify_all();
}

void GroupEnd::fail_call(const Error& error) {
  const std::lock_guard lock(mutex_);
  end_locked(error, call_ - 1);
  calling_ = false;
  changed_.notify_all();
  throw *error_;
}

void GroupEnd::abort(const Error& error) {
  const std::lock_guard lock(mutex_);
  is_aborted_ = true;
  changed_.notify_all();
  end_locked(error, joined_);
}

void GroupEnd::end(const Error& error) {
  const std::lock_guard lock(mutex_);
  end_locked(error, joined_);
}

void GroupEnd::check() const {
  const std::lock_guard lock(mutex_);
  if (error_) throw *error_;
}

void GroupEnd::end_locked(const Error& error, uint64_t finish) {
  if (error_) return;
  error_ = error;
  finish_ = finish;
  control_->abort(encode({error, finish}));
}

// Nobody ever sends a message: the wait for one ends with the group.
void GroupEnd::listen() {
  char nothing = 0;
  std::optional<Ending> ending;
  try {
    control_->receive(&nothing, sizeof nothing);
    ending = {Error(Code::kDataLoss, "a rank has sent what nobody expects"), 0};
  } catch (const Error& error) {
    ending = decode(error);
  }
  std::unique_lock lock(mutex_);
  end_locked(ending->error, ending->finish);
  const auto is_finished = [&] { return !calling_ || call_ > finish_; };
  changed_.wait_for(lock, kPatience, [&] { return is_finished() || is_aborted_; });
  changed_.wait_for(lock, kAbortedPatience, [&] { return is_finished() || !is_aborted_; });
  const Error error = *error_;
  lock.unlock();
  stop_(error);
}

}  // namespace cohort::hierarchical
