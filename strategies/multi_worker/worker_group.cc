#include "strategies/multi_worker/worker_group.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <thread>
#include <utility>

#include "core/base/comma_separated.h"
#include "core/base/fnv1a.h"
#include "core/base/notice.h"
#include "core/base/program.h"
#include "core/distribute/packing.h"

namespace cohort {
namespace {

constexpr size_t kInlineBytes = 32;  // of a value, in a Record
// How much of an error or a topic the others are told.
constexpr size_t kLongestDetail = 16 << 10;
// How long to wait for the cause when a peer cannot be reached any more: many times as long as it
// takes to learn that a process has ended. A host that cannot be reached is reported at once by
// who finds it.
constexpr auto kCauseTimeout = std::chrono::seconds(1);
// How long to wait for the others to have heard of an error. All are about to; one that stands
// still for longer is lost, and the job with it.
constexpr auto kShareTimeout = std::chrono::seconds(10);

// After how long a worker that waits for a step says so, long before others ask whether it does.
constexpr std::chrono::milliseconds kWaitsAfter(5);
constexpr std::chrono::nanoseconds kLongestLook = std::chrono::milliseconds(1);

std::string waiting_key(int rank) { return str("waiting for a step/", rank); }

std::string pack(const Error& error) {
  Packer packer;
  packer.add(Error(error.code(), error.message().substr(0, kLongestDetail), error.peer()));
  return packer.bytes();
}

// Whether `error` is `inner`, perhaps with context in front.
bool is_of(const Error& error, const Error& inner) {
  return error.code() == inner.code() && error.message().ends_with(inner.message());
}

// Whether it is what all workers have thrown: the same mistake made once more has no peer yet.
bool is_told(const Error& error, const std::optional<Error>& shared) {
  return shared && is_of(error, *shared) && error.peer() == shared->peer();
}

}  // namespace

// What one worker says in a call. The same size on every worker, so that one collective will do.
struct WorkerGroup::Record {
  enum Flag : uint32_t {
    kFailed = 1,
    kInterrupted = 2,
    kTerminated = 4,
    kStepFailed = 8,    // of which variables were to be changed
    kHasCombined = 16,  // in its last step, of which nobody is ahead
  };
  uint64_t topic;
  uint32_t flags;
  uint32_t detail_bytes;  // of the error, or the topic
  int64_t time;           // Workers::chief_time() of this worker's clock, in ns
  // StepTimes since the last step began, in ns; of none within a step.
  int64_t computed, longest_to, longest, shortest;
  uint64_t value_bytes;
  char value[kInlineBytes];  // where it fits
};

WorkerGroup::WorkerGroup(std::shared_ptr<WorkerLink> link, std::chrono::milliseconds limit,
                         std::optional<std::chrono::milliseconds> step_limit,
                         std::shared_ptr<const StepWatch> step,
                         std::function<void(const Error&)> before_failing)
    : link_(std::move(link)),
      step_(std::move(step)),
      communicator_(std::move(link_->connect("workers", 1, limit).front())),
      step_limit_(step_limit < limit ? step_limit : std::nullopt),
      before_failing_(std::move(before_failing)) {
  waits_.for_worker.resize(static_cast<size_t>(link_->size()));
}

void WorkerGroup::run(const std::string& topic, const Call& call, Patience patience) {
  const auto begin = std::chrono::steady_clock::now();
  try {
    if (step_limit_ && patience == Patience::kOfStep)
      run_for_step(call);
    else
      communicator_->run(call);
    const auto time = std::chrono::steady_clock::now() - begin;
    waited_ += time;
    const std::lock_guard lock(mutex_);
    waits_.all += time;
  } catch (const Error& error) {
    set_over();
    if (error.code() != Code::kDeadlineExceeded) throw cause_of(error);
    throw Error(error.code(),
                str(topic, ": ", error.message(), "; every worker has to make this call"),
                error.peer());
  }
}

void WorkerGroup::run_for_step(const Call& call) {
  const int64_t operation = communicator_->start(call);
  try {
    await_for_step(operation);
  } catch (const Error& error) {
    communicator_->abort(error);
  }
  communicator_->wait(operation);  // its memory is in use until then, whatever has gone wrong
}

void WorkerGroup::await_for_step(int64_t operation) {
  const auto begin = std::chrono::steady_clock::now();
  bool has_told = false;
  while (!communicator_->is_done(operation)) {
    const std::chrono::nanoseconds waited = std::chrono::steady_clock::now() - begin;
    if (waited >= *step_limit_) throw late_for_step();
    if (waited >= kWaitsAfter && !std::exchange(has_told, true))
      link_->own_store().set(waiting_key(rank()), std::to_string(meetings()));
    std::this_thread::sleep_for(std::min(waited / 8, kLongestLook));
  }
}

// Names those that have not said that they wait, too.
Error WorkerGroup::late_for_step() {
  const std::string now = std::to_string(meetings());
  std::vector<int> late;
  for (int r = 0; r < size(); ++r)
    if (r != rank() && link_->own_store().find(waiting_key(r)) != now) late.push_back(r);
  const auto name_of = [this](int r) { return name(r); };
  return Error(
      Code::kDeadlineExceeded,
      str(name(rank()), " has waited for ",
          late.empty() ? "the others" : comma_separated(late, name_of), " for longer than ",
          step_limit_->count(), " ms (CommunicationOptions::timeout_seconds)"),
      late.empty() ? "" : name(late[0]));
}

WorkerGroup::Record WorkerGroup::own_record(const std::string& topic, std::string_view detail,
                                            std::string_view value, const Failure& failure,
                                            const StepTimes& times) const {
  Record own{.topic = fnv1a(topic),
             .flags = failure.error == nullptr ? 0u : Record::kFailed,
             .detail_bytes = static_cast<uint32_t>(detail.size()),
             .time = Workers::chief_time().count(),
             .computed = times.computed.count(),
             .longest_to = times.longest_to,
             .longest = times.longest.count(),
             .shortest = times.shortest.count(),
             .value_bytes = value.size(),
             .value = {}};
  if (failure.of_writing_step) own.flags |= Record::kStepFailed;
  if (step_->has_combined()) own.flags |= Record::kHasCombined;
  if (stop_request() == StopRequest::kInterrupt) own.flags |= Record::kInterrupted;
  if (stop_request() == StopRequest::kTermination) own.flags |= Record::kTerminated;
  if (value.size() <= kInlineBytes && !value.empty())
    std::memcpy(own.value, value.data(), value.size());
  return own;
}

std::vector<WorkerGroup::Record> WorkerGroup::meet(const std::string& topic, std::string_view value,
                                                   const Failure& failure, Patience patience,
                                                   const StepTimes& times) {
  {
    const std::lock_guard lock(mutex_);
    if (final_error_) {
      is_over_ = true;
      throw *final_error_;
    }
    shared_error_.reset();
    ++meetings_;
  }
  std::string detail = failure.error == nullptr ? topic : pack(*failure.error);
  detail.resize(std::min(detail.size(), 2 * kLongestDetail));
  const Record own = own_record(topic, detail, value, failure, times);

  std::vector<Record> all(static_cast<size_t>(size()));
  const std::vector<int64_t> bytes(all.size(), sizeof(Record));
  run(topic, AllGatherCall{&own, all.data(), bytes}, patience);
  {
    const std::lock_guard lock(mutex_);
    chief_time_ = std::chrono::nanoseconds(all[0].time);
  }

  const auto any = [&](uint32_t flag) {
    return std::any_of(all.begin(), all.end(), [&](const Record& r) { return r.flags & flag; });
  };
  if (any(Record::kInterrupted)) request_stop(StopRequest::kInterrupt);
  if (any(Record::kTerminated)) request_stop(StopRequest::kTermination);
  if (any(Record::kInterrupted | Record::kTerminated)) note_stop(all);
  const bool failed = any(Record::kFailed);
  const auto differs = [&](const Record& r) { return r.topic != all[0].topic; };
  if (!failed && std::none_of(all.begin(), all.end(), differs)) return all;

  std::vector<int64_t> detail_bytes;
  for (const Record& r : all)
    detail_bytes.push_back(std::min<int64_t>(r.detail_bytes, 2 * kLongestDetail));
  std::vector<std::string> details = gather(detail, detail_bytes);
  if (!failed) throw_mismatch(all, details);
  for (size_t r = 0; r < all.size(); ++r)
    if (!(all[r].flags & Record::kFailed)) details[r].clear();
  throw_failure(details, any(Record::kStepFailed) && any(Record::kHasCombined));
}

// Who has not been asked itself is told who has.
void WorkerGroup::note_stop(const std::vector<Record>& records) {
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(stop_requested_, true)) return;
  }
  const auto is_asked = [&](int r) {
    return (records[static_cast<size_t>(r)].flags & (Record::kInterrupted | Record::kTerminated)) !=
           0;
  };
  if (is_asked(rank())) return;
  std::vector<int> asked;
  for (int r = 0; r < size(); ++r)
    if (is_asked(r)) asked.push_back(r);
  print_notice(str("cohort: ", comma_separated(asked, [this](int r) { return name(r); }),
                   asked.size() == 1 ? " has" : " have",
                   " been asked to stop, and all workers stop together\n"));
}

std::vector<std::string> WorkerGroup::gather(std::string_view value,
                                             const std::vector<int64_t>& bytes) {
  std::string all(static_cast<size_t>(std::accumulate(bytes.begin(), bytes.end(), int64_t{0})),
                  '\0');
  run("a long message", AllGatherCall{value.data(), all.data(), bytes});
  std::vector<std::string> parts;
  size_t begin = 0;
  for (const int64_t size : bytes) {
    parts.push_back(all.substr(begin, static_cast<size_t>(size)));
    begin += static_cast<size_t>(size);
  }
  return parts;
}

void WorkerGroup::throw_shared(const Error& error) {
  share(error);
  throw error;
}

// Returns when all have heard of it: who ends the job because of it takes it from nobody.
void WorkerGroup::share(const Error& error) {
  {
    const std::lock_guard lock(mutex_);
    shared_error_ = error;
  }
  try {
    link_->barrier("an error of all workers", kShareTimeout);
  } catch (const Error&) {  // the next call tells
  }
}

// That of the lowest rank whose own it is: others may have been told of it already.
void WorkerGroup::throw_failure(const std::vector<std::string>& details, bool is_final) {
  std::optional<Error> chosen;
  for (size_t r = 0; r < details.size(); ++r) {
    if (details[r].empty()) continue;
    const Error error = Unpacker(details[r]).error();
    const std::string self = name(static_cast<int>(r));
    const bool own = error.peer().empty() || error.peer() == self;
    // A stop that was asked for is nobody's fault.
    const bool has_fault = error.code() != Code::kCancelled || !stop_requested();
    if (own || !chosen)
      chosen = Error(error.code(), error.message(), own && has_fault ? self : error.peer());
    if (own) break;
  }
  if (!is_final) throw_shared(*chosen);
  const Error error(chosen->code(),
                    str(chosen->message(), "; the step had begun to change variables, which may ",
                        "now differ: the job has to be started again from what it has saved"),
                    chosen->peer());
  {
    const std::lock_guard lock(mutex_);
    final_error_ = error;
    is_over_ = true;
  }
  share(error);
  link_->report(error);
  throw error;
}

void WorkerGroup::throw_mismatch(const std::vector<Record>& records,
                                 const std::vector<std::string>& topics) {
  // By their hashes: of long topics these are only the beginnings.
  const auto odd = std::ranges::find_if(
      records, [&](const Record& record) { return record.topic != records[0].topic; });
  const auto other = static_cast<size_t>(odd - records.begin());
  throw_shared(Error(Code::kFailedPrecondition,
                     str("every worker has to make the same calls in the same order, but ", name(0),
                         " is at ", topics[0], " and ", name(static_cast<int>(other)), " at ",
                         topics[other] == topics[0]
                             ? str("one that differs after these ", topics[0].size(), " bytes")
                             : topics[other])));
}

std::vector<std::string> WorkerGroup::exchange(const std::string& topic, std::string_view value) {
  const std::lock_guard one_at_a_time(calling_);
  return values_of(topic, value, meet(topic, value, {}));
}

std::vector<std::string> WorkerGroup::exchange_for_step(const std::string& topic,
                                                        std::string_view value) {
  const std::lock_guard one_at_a_time(calling_);
  return values_of(topic, value, meet(topic, value, {}, Patience::kOfStep));
}

std::vector<std::string> WorkerGroup::exchange_before_step(const std::string& topic,
                                                           std::string_view value) {
  const std::lock_guard one_at_a_time(calling_);
  const std::vector<Record> records = meet(topic, value, {}, Patience::kOfStep, step_times());
  name_stragglers(topic, records);
  std::vector<std::string> values = values_of(topic, value, records);
  add_waits(records);
  return values;
}

void WorkerGroup::begin_computing() {
  const std::lock_guard one_at_a_time(calling_);
  computes_since_ = std::chrono::steady_clock::now();
  waited_ = {};
}

StepTimes WorkerGroup::step_times() {
  const auto sent = link_->take_sending_times();
  const auto since = std::exchange(computes_since_, std::nullopt);
  if (!since) return {};
  StepTimes times{.computed =
                      std::chrono::steady_clock::now() - *since - waited_ - step_->waited()};
  if (sent.empty()) return times;  // as in shared memory
  std::vector<std::string> others;
  for (int r = 0; r < size(); ++r) others.push_back(r == rank() ? "" : name(r));
  times.set_sent(sent, others);
  return times;
}

void WorkerGroup::name_stragglers(const std::string& topic, const std::vector<Record>& records) {
  using std::chrono::nanoseconds;
  std::vector<StepTimes> all;
  std::vector<nanoseconds> computed;
  for (const Record& record : records) {
    computed.emplace_back(record.computed);
    all.push_back({.computed = computed.back(),
                   .longest_to = record.longest_to,
                   .longest = nanoseconds(record.longest),
                   .shortest = nanoseconds(record.shortest)});
  }
  const auto slow_worker = slow_workers_.add_step(computed);
  const auto slow_network = slow_networks_.add_step(network_times(all));
  if (rank() != 0) return;
  const auto text = [](nanoseconds time) {
    return str(std::chrono::round<std::chrono::milliseconds>(time).count(), " ms");
  };
  if (slow_worker)
    print_notice(str("warning: all workers wait for ", name(slow_worker->worker),
                     ", the slowest for ", StragglerWatch::kSteps, " steps: before ", topic,
                     " it computed for ", text(slow_worker->own), ", and the median worker for ",
                     text(slow_worker->median), "\n"));
  if (slow_network)
    print_notice(str("warning: all workers wait for the network of ", name(slow_network->worker),
                     ", the slowest for ", StragglerWatch::kSteps, " steps: before ", topic,
                     " it was busy for ", text(slow_network->own), ", and the rest took ",
                     text(slow_network->median), "\n"));
}

// Of the step before and what came after it, which together took all workers equally long: what
// one has computed for less than the others it has waited for more.
void WorkerGroup::add_waits(const std::vector<Record>& records) {
  const auto in_step = step_->in_collectives();
  const auto last = std::ranges::max_element(records, {}, &Record::computed);
  const int64_t own = records[static_cast<size_t>(rank())].computed;
  const std::chrono::nanoseconds ahead(own > 0 ? last->computed - own : 0);
  const std::lock_guard lock(mutex_);
  waits_.all += in_step;
  waits_.for_worker[static_cast<size_t>(last - records.begin())] +=
      std::min(ahead, waited_ + in_step);
}

StepWaits WorkerGroup::waits() const {
  const std::lock_guard lock(mutex_);
  StepWaits waits = waits_;
  waits.all += step_->in_collectives();
  return waits;
}

int64_t WorkerGroup::meetings() const {
  const std::lock_guard lock(mutex_);
  return meetings_;
}

std::vector<std::string> WorkerGroup::values_of(const std::string& topic, std::string_view own,
                                                const std::vector<Record>& records) {
  std::vector<int64_t> bytes;
  for (const Record& r : records) {
    if (r.value_bytes > static_cast<uint64_t>(INT64_MAX) / records.size())
      cohort::fail(Code::kDataLoss, topic, ": a worker announces ", r.value_bytes, " bytes");
    bytes.push_back(static_cast<int64_t>(r.value_bytes));
  }
  if (*std::max_element(bytes.begin(), bytes.end()) > static_cast<int64_t>(kInlineBytes))
    return gather(own, bytes);
  std::vector<std::string> values;
  for (const Record& r : records) values.emplace_back(r.value, r.value_bytes);
  return values;
}

void WorkerGroup::broadcast(const std::string& topic, void* data, size_t bytes) {
  const std::lock_guard one_at_a_time(calling_);
  meet(str(topic, " (", bytes, " bytes)"), {}, {});
  run(topic, BroadcastCall{data, data, static_cast<int64_t>(bytes), 0});
}

void WorkerGroup::fail(const Error& error) { fail({&error, false}); }
void WorkerGroup::fail_writing_step(const Error& error) { fail({&error, true}); }

void WorkerGroup::fail(const Failure& failure) {
  const Error& error = *failure.error;
  if (is_told(error, shared_error())) throw error;
  // Whom this wakes shall know that it is not his own.
  before_failing_(error.peer().empty() ? Error(error.code(), error.message(), name(rank()))
                                       : error);
  try {
    const std::lock_guard one_at_a_time(calling_);
    meet("a failure", {}, failure);
  } catch (const Error& answer) {
    // Nobody listens: the error counts, and not that of telling it.
    if (answer.code() == Code::kDeadlineExceeded) throw error;
    if (is_of(error, answer)) throw Error(error.code(), error.message(), answer.peer());
    throw;
  }
  throw error;  // not reached: to meet with an error throws
}

bool WorkerGroup::stop_requested() const {
  const std::lock_guard lock(mutex_);
  return stop_requested_;
}

std::chrono::nanoseconds WorkerGroup::chief_time() const {
  const std::lock_guard lock(mutex_);
  return chief_time_;
}

void WorkerGroup::end_job(const Error& error) {
  set_over();
  link_->report(error);
  throw link_->failure(std::chrono::milliseconds(0)).value_or(error);
}

bool WorkerGroup::is_over() const {
  const std::lock_guard lock(mutex_);
  return is_over_;
}

void WorkerGroup::set_over() {
  const std::lock_guard lock(mutex_);
  is_over_ = true;
}

std::optional<Error> WorkerGroup::shared_error() const {
  const std::lock_guard lock(mutex_);
  return shared_error_;
}

bool WorkerGroup::abort(const Error& error) {
  {
    const std::lock_guard lock(mutex_);
    if (shared_error_) {
      if (!final_error_) final_error_ = error;
      return false;
    }
  }
  communicator_->abort(error);
  return true;
}

Error WorkerGroup::cause_of(const Error& error) {
  if (error.code() != Code::kUnavailable) return error;
  const auto cause = link_->failure(kCauseTimeout);
  if (!cause && !is_other(error.peer())) return error;
  set_over();
  if (cause) return *cause;
  // Only connections have broken: all end with what this worker has found.
  link_->report(error);
  return link_->failure(std::chrono::milliseconds(0)).value_or(error);
}

bool WorkerGroup::is_other(const std::string& name) const {
  for (int r = 0; r < size(); ++r)
    if (r != rank() && this->name(r) == name) return true;
  return false;
}

}  // namespace cohort
