#include "strategies/collective/flight_recorder.h"

#include <algorithm>
#include <chrono>
#include <fstream>
#include <map>
#include <mutex>
#include <thread>
#include <variant>

#include "core/base/notice.h"
#include "core/base/start_threads.h"
#include "core/collective/forwarding_communicator.h"
#include "strategies/collective/flight.h"

namespace cohort {
namespace {

using namespace flight_recorder;

constexpr size_t kMaxText = 8192;  // of what another rank says
// Of one wait for somebody who asks.
constexpr std::chrono::seconds kAskWait{10};

Record record_of(const Call& call) {
  Record record{.what = kind_of(call), .bytes = bytes_of(call)};
  std::visit(
      [&](const auto& own) {
        if constexpr (requires { own.dtype; }) record.dtype = dtype_name(own.dtype);
        if constexpr (requires { own.root; }) record.peer = own.root;
        if constexpr (requires { own.op; }) record.op = own.op;
        if constexpr (requires { own.shape; })
          if (own.shape != nullptr) record.shape = *own.shape;
        if constexpr (requires { own.specs; })
          if (const auto spec = std::ranges::find(own.specs, own.dtype, &TensorSpec::dtype);
              spec != own.specs.end())
            record.shape = spec->shape;
      },
      call);
  return record;
}

// The ranks of this process, and how they learn of others.
class Recorder {
 public:
  Recorder(const FlightRecorderOptions& options, const std::vector<int>& ranks, int size)
      : options_(options), size_(size) {
    for (const int rank : ranks) flights_.try_emplace(rank, options.kept);
    if (options_.store != nullptr && static_cast<int>(ranks.size()) < size)
      listener_ = start_thread([this] { listen(); });
  }
  ~Recorder() {
    {
      const std::lock_guard lock(mutex_);
      ended_ = true;
    }
    if (!listener_.joinable()) return;
    try {
      options_.store->set(ask_key(flights_.begin()->first), "");
      listener_.join();
      options_.store->erase(ask_key(flights_.begin()->first));
    } catch (const Error&) {  // a store that has failed ends the listener, too
      if (listener_.joinable()) listener_.join();
    }
  }
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  Flight& flight(int rank) { return flights_.at(rank); }
  const FlightRecorderOptions& options() const { return options_; }

  // An end that was asked for, as by SIGTERM, needs no explanation; nor, while no rank of this
  // process is in an operation, does what the system has refused, as the saving of a file, or what
  // is damaged in one, nor any where none has begun one. A call that throws explains itself, by
  // what it throws: it may have found the reason of the abort.
  bool has_to_explain_abort(const Error& error) const {
    const auto any = [this](bool (Flight::*is)() const) {
      return std::ranges::any_of(
          flights_, [is](const auto& rank_and_flight) { return (rank_and_flight.second.*is)(); });
    };
    if (error.code() == Code::kCancelled || any(&Flight::is_in_call)) return false;
    if (any(&Flight::has_under_way)) return true;
    const bool is_of_file = error.code() == Code::kResourceExhausted ||
                            error.code() == Code::kPermissionDenied ||
                            error.code() == Code::kNotFound || error.code() == Code::kDataLoss;
    return !is_of_file && any(&Flight::has_begun);
  }

  // Makes the table of this process, the first time. Values that a kernel refuses, as a label
  // beyond the classes, are no matter of who waits for whom.
  void explain(int rank, const Error& error, bool of_call) noexcept {
    if (error.code() == Code::kOutOfRange) return;
    std::call_once(explained_, [&] {
      const bool timed_out = of_call && error.code() == Code::kDeadlineExceeded;
      try {
        tell(str("The last operations of the group \"", options_.name, "\", of which rank ", rank,
                 " has got ", code_name(error.code()), " (", error.message(), "):\n") +
             gather(timed_out ? options_.store_on_time_out.lock() : nullptr));
      } catch (const std::exception&) {  // the error itself is what counts
      }
    });
  }

  // FlightRecorderOptions::show. Asks no other process: whom this one waits for is in no trouble.
  void show(const std::string& why) noexcept {
    try {
      tell(str("The last operations of the group \"", options_.name, "\" (", why, "):\n") +
           table_of(own_texts()));
      for (const auto& part : parts())
        if (const auto present = part.lock()) present->show(why);
    } catch (const std::exception&) {  // the call goes on
    }
  }
  void add_part(const std::shared_ptr<Recorder>& part) {
    const std::lock_guard lock(mutex_);
    std::erase_if(parts_, [](const auto& other) { return other.expired(); });
    parts_.push_back(part);
  }

 private:
  std::vector<std::weak_ptr<Recorder>> parts() const {
    const std::lock_guard lock(mutex_);
    return parts_;
  }

  void tell(const std::string& table) const {
    if (options_.notice)
      options_.notice(table);
    else if (options_.file.empty() || !append_to_file(table))
      print_notice(table);
  }
  bool append_to_file(const std::string& table) const {
    std::ofstream file(str(options_.file, ".rank", flights_.begin()->first), std::ios::app);
    return static_cast<bool>(file << table << std::flush);
  }

  std::string ask_key(int rank) const { return str(options_.name, "/flight/ask/", rank); }
  std::string answer_key(int rank) const { return str(options_.name, "/flight/", rank); }

  // Shows the others what the ranks of this process did, once somebody asks.
  void listen() {
    try {
      const int first = flights_.begin()->first;
      while (!has_ended()) {
        try {
          options_.store->get(ask_key(first), kAskWait);
          break;
        } catch (const Error& error) {
          if (error.code() != Code::kDeadlineExceeded) throw;
        }
      }
      if (!has_ended()) publish();
    } catch (const Error&) {  // without a store there is nobody to answer
    }
  }
  bool has_ended() const {
    const std::lock_guard lock(mutex_);
    return ended_;
  }
  void publish() { publish(*options_.store); }
  void publish(KeyValueStore& store) const {
    for (const auto& [rank, flight] : flights_) store.set(answer_key(rank), flight.text());
  }

  std::map<int, std::string> own_texts() const {
    std::map<int, std::string> texts;
    for (const auto& [rank, flight] : flights_) texts[rank] = flight.text();
    return texts;
  }
  static std::string table_of(const std::map<int, std::string>& texts) {
    std::string table;
    for (const auto& [rank, text] : texts) table += str("  rank ", rank, ' ', text);
    return table;
  }

  // What each rank has done, in rank order. `on_time_out`: those of others are in the same trouble,
  // and show it there.
  std::string gather(const std::shared_ptr<KeyValueStore>& on_time_out) {
    KeyValueStore* const store = listener_.joinable() ? options_.store : on_time_out.get();
    const auto until = Clock::now() + options_.gather_limit;
    std::map<int, std::string> texts = own_texts();
    if (store != nullptr) {
      try {
        publish(*store);
        for (int r = 0; r < size_ && listener_.joinable(); ++r)
          if (!flights_.contains(r)) store->set(ask_key(r), "");
        for (int r = 0; r < size_; ++r)
          if (!flights_.contains(r)) texts[r] = answer_of(r, *store, until);
      } catch (const Error& error) {
        for (int r = 0; r < size_; ++r)
          texts.try_emplace(r, str("cannot be asked: ", error.message(), '\n'));
      }
    }
    std::string table = table_of(texts);
    if (const size_t others = static_cast<size_t>(size_) - texts.size(); others > 0)
      table += others == 1
                   ? "  1 rank is in another process, which tells of it\n"
                   : str("  ", others, " ranks are in other processes, which tell of them\n");
    return table;
  }
  std::string answer_of(int rank, KeyValueStore& store, Clock::time_point until) const {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now());
    try {
      return store.get(answer_key(rank), std::max(left, std::chrono::milliseconds(0)))
          .substr(0, kMaxText);
    } catch (const Error& error) {
      if (error.code() != Code::kDeadlineExceeded) throw;
      return str("has not answered within ", in_seconds(options_.gather_limit), '\n');
    }
  }

  const FlightRecorderOptions options_;
  const int size_;
  std::map<int, Flight> flights_;
  std::once_flag explained_;
  mutable std::mutex mutex_;  // guards the two that follow
  bool ended_ = false;
  std::vector<std::weak_ptr<Recorder>> parts_;
  std::thread listener_;
};

// Puts a RecordingCommunicator around each; null where nothing is recorded.
std::shared_ptr<Recorder> record(std::vector<std::unique_ptr<Communicator>>& ranks,
                                 const FlightRecorderOptions& options);

class RecordingCommunicator final : public ForwardingCommunicator {
 public:
  RecordingCommunicator(std::unique_ptr<Communicator> inner, std::shared_ptr<Recorder> recorder)
      : ForwardingCommunicator(std::move(inner)),
        recorder_(std::move(recorder)),
        rank_(rank()),
        flight_(recorder_->flight(rank_)) {}

  void run(const Call& call) override {
    const uint64_t place = flight_.begin(record_of(call), true);
    guarded(place, [&] { inner().run(call); });
    flight_.finish(place, State::kDone);
  }
  int64_t start(const Call& call) override {
    const uint64_t place = flight_.begin(record_of(call), true);
    return started(place, [&] { return inner().start(call); });
  }
  // Messages that cannot be are refused before they are an operation: that harms nobody.
  int64_t start_send(const SendCall& call) override {
    check_send(call, rank_, size());
    const uint64_t place = flight_.begin(
        {.what = "Send", .bytes = call.bytes, .peer = call.destination, .tag = call.tag}, false);
    return started(place, [&] { return inner().start_send(call); });
  }
  int64_t start_receive(const ReceiveCall& call) override {
    check_receive(call, rank_, size());
    const uint64_t place = flight_.begin(
        {.what = "Receive", .bytes = call.capacity, .peer = call.source, .tag = call.tag}, false);
    return started(place, [&] { return inner().start_receive(call); });
  }
  // A message that its receiver has no room for leaves the group as it was.
  Received wait(int64_t operation) override {
    const Flight::InCall in_call(flight_);
    try {
      const Received received = inner().wait(operation);
      flight_.finish_operation(operation, State::kDone);
      return received;
    } catch (const Error& error) {
      if (error.code() != Code::kInvalidArgument || flight_.is_started_collective(operation))
        recorder_->explain(rank_, error, true);
      flight_.finish_operation(operation, State::kFailed);
      throw;
    }
  }
  std::unique_ptr<Communicator> split(int color, int key) override {
    const uint64_t place = flight_.begin({.what = "Split"}, true);
    std::unique_ptr<Communicator> group;
    guarded(place, [&] { group = inner().split(color, key); });
    flight_.finish(place, State::kDone);
    return group == nullptr ? nullptr : recorded_part(std::move(group));
  }
  void abort(const Error& error) override {
    const bool has_to_explain = recorder_->has_to_explain_abort(error);
    inner().abort(error);
    if (has_to_explain) recorder_->explain(rank_, error, false);
  }

 private:
  std::unique_ptr<Communicator> recorded_part(std::unique_ptr<Communicator> part) const {
    FlightRecorderOptions options = recorder_->options();
    options.store = nullptr;
    options.store_on_time_out.reset();
    options.name += "/part";
    std::vector<std::unique_ptr<Communicator>> own;
    own.push_back(std::move(part));
    recorder_->add_part(record(own, options));
    return std::move(own[0]);
  }

  // The table still shows what fails as waiting, with the time that it has waited.
  template <typename Work>
  void guarded(uint64_t place, const Work& work) {
    const Flight::InCall in_call(flight_);
    try {
      work();
    } catch (const Error& error) {
      recorder_->explain(rank_, error, true);
      flight_.finish(place, State::kFailed);
      throw;
    }
  }
  template <typename Work>
  int64_t started(uint64_t place, const Work& work) {
    int64_t operation = -1;
    guarded(place, [&] { operation = work(); });
    flight_.set_operation(place, operation);
    return operation;
  }

  const std::shared_ptr<Recorder> recorder_;
  const int rank_;
  Flight& flight_;
};

std::shared_ptr<Recorder> record(std::vector<std::unique_ptr<Communicator>>& ranks,
                                 const FlightRecorderOptions& options) {
  if (ranks.empty() || options.kept == 0) return nullptr;
  std::vector<int> own;
  for (const auto& communicator : ranks) own.push_back(communicator->rank());
  auto recorder = std::make_shared<Recorder>(options, own, ranks[0]->size());
  for (auto& communicator : ranks)
    communicator = std::make_unique<RecordingCommunicator>(std::move(communicator), recorder);
  return recorder;
}

}  // namespace

std::vector<std::unique_ptr<Communicator>> record_flights(
    std::vector<std::unique_ptr<Communicator>> ranks, const FlightRecorderOptions& options) {
  const auto recorder = record(ranks, options);
  if (recorder != nullptr && options.show != nullptr)
    *options.show = [recorder = std::weak_ptr(recorder)](const std::string& why) {
      if (const auto present = recorder.lock()) present->show(why);
    };
  return ranks;
}

}  // namespace cohort
