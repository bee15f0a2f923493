#include "strategies/collective/hierarchical/group_end.h"

#include <algorithm>
#include <charconv>

#include "core/base/start_threads.h"

namespace cohort::hierarchical {
namespace {

// How long ranks go on with what they were about to finish when the group ended: far longer than it
// takes those that are alive.
constexpr std::chrono::seconds kPatience{10};
// The same when the application has ended it, as when one of them is lost.
constexpr std::chrono::milliseconds kAbortedPatience{200};
// How long a rank that is not stopped may take to answer where it is.
constexpr std::chrono::seconds kAnswerTime{2};

// Ranks ask and answer by the tags of empty messages, which nobody has to wait for. Calls that are
// under way differ by one at most.
constexpr int kWhereAreYou = 0;
constexpr uint64_t kCalls = uint64_t{1} << 29;

int answer_of(uint64_t call, bool calling) {
  return static_cast<int>(1 + call % kCalls * 2 + (calling ? 1 : 0));
}

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
    : control_(std::move(control)),
      stop_(std::move(stop)),
      listener_(start_thread([this] { listen(); })) {}

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

void GroupEnd::check_stopped() const {
  const std::lock_guard lock(mutex_);
  if (stopped_) throw *error_;
}

void GroupEnd::end_locked(const Error& error, uint64_t finish) {
  if (error_) return;
  error_ = error;
  finish_ = finish;
  changed_.notify_all();
  control_->abort(encode({error, finish}));
}

GroupEnd::Missing GroupEnd::call_roll() {
  std::unique_lock lock(mutex_);
  if (error_) return {};
  places_.assign(static_cast<size_t>(control_->size()), std::nullopt);
  places_[static_cast<size_t>(control_->rank())] = Place{call_ % kCalls, true};
  try {
    for (int r = 0; r < control_->size(); ++r)
      if (r != control_->rank()) say(r, kWhereAreYou);
  } catch (const Error&) {  // the group has ended, of which the listener hears
  }
  changed_.wait_for(lock, kAnswerTime, [&] { return error_ || all_have_answered(); });
  return error_ ? Missing() : find_missing();
}

bool GroupEnd::all_have_answered() const {
  return std::all_of(places_.begin(), places_.end(), [](const auto& place) { return !!place; });
}

GroupEnd::Missing GroupEnd::find_missing() const {
  Missing silent{{}, "no answer from"}, away{{}, "not called by"},
      behind{{}, "the call before not finished by"};
  for (int r = 0; r < control_->size(); ++r) {
    const auto& place = places_[static_cast<size_t>(r)];
    if (!place)
      silent.ranks.push_back(r);
    else if ((place->call + 1) % kCalls == call_ % kCalls)
      (place->calling ? behind : away).ranks.push_back(r);
  }
  return !silent.ranks.empty() ? silent : !away.ranks.empty() ? away : behind;
}

void GroupEnd::say(int rank, int word) { control_->start_send({nullptr, 0, rank, word}); }

void GroupEnd::take(const Received& word) {
  const std::lock_guard lock(mutex_);
  if (word.tag == kWhereAreYou) return say(word.source, answer_of(call_, calling_));
  const auto answer = static_cast<uint64_t>(word.tag - 1);
  places_.resize(static_cast<size_t>(control_->size()));
  places_[static_cast<size_t>(word.source)] = Place{answer / 2, answer % 2 == 1};
  changed_.notify_all();
}

// The wait for a message ends with the group.
void GroupEnd::listen() {
  std::optional<Ending> ending;
  try {
    while (true) take(control_->receive(nullptr, 0));
  } catch (const Error& error) {
    ending = decode(error);
  }
  std::unique_lock lock(mutex_);
  end_locked(ending->error, ending->finish);
  const auto is_finished = [&] { return !calling_ || call_ > finish_; };
  changed_.wait_for(lock, kPatience, [&] { return is_finished() || is_aborted_; });
  changed_.wait_for(lock, kAbortedPatience, [&] { return is_finished() || !is_aborted_; });
  stopped_ = true;
  const Error error = *error_;
  lock.unlock();
  stop_(error);
}

}  // namespace cohort::hierarchical
