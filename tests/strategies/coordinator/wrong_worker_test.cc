// A worker that is none of ours, and what becomes of a coordinator that it answers.
#include <mutex>

#include <grpcpp/grpcpp.h>

#include "core/base/thread_sanitizer.h"
#include "strategies/cluster/coordination/security.h"
#include "strategies/coordinator/assembler.h"
#include "strategies/coordinator/messages.h"
#include "strategies/coordinator/outbox.h"
#include "strategies/parameter_server/stream_server.h"
#include "tests/strategies/coordinator/testing.h"

namespace cohort::testing {
namespace {

using namespace coordinator;
using parameter_server::MessageReader;
using parameter_server::StreamServer;

constexpr size_t kMaxBytes = 1 << 20;
constexpr uint64_t kUnknownResult = 999'999;

using Answer = std::function<FromWorker(const ToWorker&)>;

// Answers each message at once.
class WrongCall final : public StreamServer::Reactor {
 public:
  explicit WrongCall(Answer answer) : answer_(std::move(answer)) {
    COHORT_TSAN_RELEASE(this);
    StartRead(&incoming_);
  }

  void OnReadDone(bool ok) override {
    COHORT_TSAN_ACQUIRE(this);
    const std::lock_guard lock(mutex_);
    if (!ok) {
      finished_ = true;
      return Finish(grpc::Status::OK);
    }
    if (const auto message = assembler_.take(MessageReader(incoming_)))
      outbox_.add(encode(answer_(*message)));
    write();
    StartRead(&incoming_);
  }

  void OnWriteDone(bool ok) override {
    const std::lock_guard lock(mutex_);
    outbox_.written();
    if (ok) write();
  }

  void OnDone() override { delete this; }

 private:
  // REQUIRES: mutex_ held.
  void write() {
    if (finished_) return;
    if (const grpc::ByteBuffer* part = outbox_.next()) StartWrite(part);
  }

  const Answer answer_;
  grpc::ByteBuffer incoming_;
  std::mutex mutex_;
  Assembler<ToWorker> assembler_{decode_to_worker, kMaxBytes};
  Outbox outbox_;
  bool finished_ = false;
};

class WrongWorker {
 public:
  explicit WrongWorker(const Answer& answer)
      : server_("wrong worker", kMethod, Address::parse(port_.address()),
                coordination::Security({}, false, no_environment),
                [answer](const coordination::CertifiedTasks&) { return new WrongCall(answer); },
                {}) {}
  ClusterSpec cluster() const {
    return ClusterSpec(ClusterSpec::Jobs{{"worker", {port_.address()}}});
  }

 private:
  launcher::ReservedPort port_;
  StreamServer server_;
};

// 7 for each closure, and the result of one that there is not.
FromWorker with_one_result_more(const ToWorker& message) {
  FromWorker answer;
  if (message.attach)
    answer.attached = Attached{.incarnation = 1, .replicas = 1, .max_bytes = kMaxBytes};
  for (const Command& command : message.commands)
    if (const auto* run = std::get_if<coordinator::Run>(&command))
      answer.results.push_back({.id = run->id, .error = {}, .values = {Tensor::scalar(7.0f)}});
  if (!answer.results.empty())
    answer.results.push_back({.id = kUnknownResult, .error = {}, .values = {}});
  return answer;
}

TEST(WrongWorker, AResultOfNoClosureEndsTheCallAndTheOthersCount) {
  Lines lines;
  const WrongWorker worker(with_one_result_more);
  ClusterCoordinator coordinator(worker.cluster(), {.job_id = "job", .notice = lines.writer()},
                                 no_environment);
  const RemoteValue value = coordinator.schedule(doubled(), 1.0f);
  coordinator.join(kPatience);
  EXPECT_EQ(value.get(kPatience).item(), 7);
  EXPECT_TRUE(eventually([&] { return lines.has(str("a result with number ", kUnknownResult)); }));
  EXPECT_EQ(coordinator.statistics().executed, 1u);
  EXPECT_EQ(coordinator.statistics().in_flight, 0u);
}

}  // namespace
}  // namespace cohort::testing
