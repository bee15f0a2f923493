#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "strategies/cluster/address.h"
#include "strategies/cluster/coordination/security.h"
#include "strategies/coordinator/assembler.h"
#include "strategies/coordinator/client_stream.h"
#include "strategies/coordinator/closure_queue.h"
#include "strategies/coordinator/held_calls.h"
#include "strategies/coordinator/in_flight_calls.h"
#include "strategies/coordinator/landed_results.h"
#include "strategies/coordinator/messages.h"
#include "strategies/coordinator/questions.h"
#include "strategies/coordinator/resource_table.h"
#include "strategies/coordinator/worker_briefing.h"
#include "strategies/coordinator/worker_window.h"

namespace cohort::coordinator {

// What a coordinator has in common for all workers. Stays longer than they.
struct WorkerContext {
  const coordination::Security& security;
  ClosureQueue& queue;
  ResourceTable& resources;
  std::string job_id, task;
  uint64_t incarnation = 0;
  int num_workers = 1;
  int replicas = 1;                  // that execute each function on its worker
  std::vector<std::string> servers;  // addresses of the parameter servers
  CompressionOptions compression;
  uint64_t seed = 0;
  // As in CoordinatorOptions.
  std::chrono::milliseconds start_delay{0}, max_start_delay{0};
  size_t max_message_bytes = 0;
  std::function<void(const std::string& line)> notice;
};

// A coordinator's dealings with one worker: connects, again after the worker was away, gives it
// what it needs to have and closures to execute, and takes their results. Has a thread of its own.
class RemoteWorker final : public ClientStream::Listener {
 public:
  using Clock = std::chrono::steady_clock;

  // The worker is the `index`th of all.
  RemoteWorker(WorkerContext& context, int index, std::string task, const Address& address);
  ~RemoteWorker() override;

  const std::string& task() const { return task_; }
  const Address& address() const { return address_; }
  // Has what is in flight given up; neither waits nor fails.
  void cancel();
  // Asks the worker to end, as soon as it is there.
  void shut_down();
  // Waits until it has been asked, after an interrupt only where it is there; whether it has.
  bool wait_until_asked(Clock::time_point deadline);
  // Waits until it has ended, or is away.
  void wait_for_end(Clock::time_point deadline);
  // What the worker keeps under this number. kUnavailable when it is lost.
  std::future<Result> fetch(uint64_t resource);
  std::future<Status> ask_status();

  bool is_attached() const;
  // Since when the worker has been away; nothing while it is there.
  std::optional<Clock::time_point> lost_since() const;
  // "worker:1 (host:port): 3 in flight, the oldest, \"step\", for 61 s".
  std::string describe() const;
  uint64_t failures() const;
  double busy_seconds() const;
  // Of what the worker has pushed to parameter servers since the last time.
  PushCounts take_pushes();

 private:
  // What the worker may be given.
  struct Allowance {
    size_t closures = 0, bytes = 0;
    ClosureQueue::Taker taker = {};
  };

  void received(const parameter_server::MessageReader& part) override;
  void drained() override;
  void closed(const Error& reason) override;

  // The thread.
  void run();
  void pause(std::chrono::milliseconds time);
  // False when the worker cannot be reached.
  bool attach();
  void serve();
  void lose();
  // Nothing of the call is left; what is to be said of its end. `in_flight` and `held` are how many
  // were. REQUIRES: mutex_ held.
  std::string detach(size_t in_flight, size_t held);
  // After a wait where it may not be given any now; none, and no wait, where it is to be told
  // something else first. Nothing: the call is over.
  std::optional<Allowance> allowance(bool may_wait);
  // How many more closures the worker may be given now. REQUIRES: mutex_ held.
  size_t room() const;
  // How many bytes of arguments it may have at a time, but for one closure more. REQUIRES: as
  // above.
  size_t window_bytes() const;
  ToWorker urgent();
  // Those whose arguments fit into a message of `max_bytes`; the others fail.
  std::vector<ClosurePtr> fitting(std::vector<ClosurePtr> closures, size_t max_bytes);
  void hand_out(std::vector<ClosurePtr> closures, ToWorker& definitions, ToWorker& runs);
  Run as_run(const Closure& closure);
  bool should_recall();
  // Where closures of a new unit are among these, or the sums are not those of what is held, the
  // worker is to forget these before.
  void forget_sums(const std::vector<ClosurePtr>& closures, ToWorker& runs);

  // Functions would be traced for others: that is an error of all that is scheduled.
  void require_replicas(int replicas);
  // REQUIRES: mutex_ held.
  void take_missing(std::vector<Missing> missing);
  void take_results(std::vector<Result> results, uint64_t busy_us);
  // Where it throws, the closure of the result is in flight as before. REQUIRES: mutex_ held.
  void take_result(Result result, LandedResults& landed);
  // To the queue, with lines for people.
  void hand_on(LandedResults landed);
  // Has the thread look at what is asked of it. REQUIRES: mutex_ held, else the thread might begin
  // to wait between its look and this.
  void interrupt();
  // "worker:1 (host:port)".
  std::string name() const;

  WorkerContext& context_;
  const int index_;
  const std::string task_;
  const Address address_;
  const Clock::time_point begins_;  // when it may be given closures

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::atomic<bool> events_ = false;  // something else than closures wants the thread
  bool stopping_ = false, attached_ = false, closed_ = false;
  bool wants_cancel_ = false, wants_shut_down_ = false;
  bool is_to_end_ = false;         // its end is no loss
  bool was_asked_to_end_ = false;  // by a message
  bool keeps_ = false;             // what goes with the worker, in variables of its own
  std::string reason_ = "not reached yet";
  Clock::time_point lost_since_;
  std::vector<Wanted> wanted_;
  Questions questions_;
  InFlightCalls in_flight_;
  HeldCalls held_;
  bool has_exceeded_ = false;  // what is held at most; there is a line of it
  uint64_t unit_ = 0;          // that it was given last
  bool recalled_ = false;      // and what that returns is not known
  size_t max_bytes_ = 0;       // that the worker takes in a message
  uint64_t last_id_ = 0, failures_ = 0;
  double busy_seconds_ = 0;
  PushCounts pushes_;
  WorkerWindow window_;
  Clock::time_point last_progress_;

  // Of the present call.
  std::unique_ptr<Assembler<FromWorker>> assembler_;
  std::unique_ptr<ClientStream> stream_;
  WorkerBriefing briefing_;

  std::thread thread_;
};

}  // namespace cohort::coordinator
