#pragma once

#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include <grpcpp/grpcpp.h>

#include "core/base/thread_sanitizer.h"
#include "strategies/cluster/coordination/security.h"
#include "strategies/cluster/launcher/reserved_port.h"
#include "strategies/coordinator/assembler.h"
#include "strategies/coordinator/messages.h"
#include "strategies/coordinator/outbox.h"
#include "strategies/parameter_server/stream_server.h"
#include "tests/strategies/coordinator/testing.h"

namespace cohort::testing {

// A worker that lets coordinators attach, and says to all else what a test wants.
class FakeWorker {
 public:
  // What becomes of a message; nothing: it is not answered. Called on any thread.
  using Answer =
      std::function<std::optional<coordinator::FromWorker>(const coordinator::ToWorker& message)>;

  explicit FakeWorker(const Answer& answer)
      : server_(Address::parse(port_.address()), coordination::Security({}, false, no_environment),
                {.name = "fake worker",
                 .method = coordinator::kMethod,
                 .accept = [answer](const auto&) { return new Call(answer); },
                 .notice = [](const std::string&) {}}) {}

  std::string address() const { return port_.address(); }

 private:
  static constexpr size_t kMaxBytes = size_t{1} << 20;

  // Answers each message at once.
  class Call final : public parameter_server::StreamServer::Reactor {
   public:
    explicit Call(Answer answer) : answer_(std::move(answer)) {
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
      if (const auto message = assembler_.take(parameter_server::MessageReader(incoming_)))
        if (const auto answer = answer_to(*message)) outbox_.add(encode(*answer));
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
    std::optional<coordinator::FromWorker> answer_to(const coordinator::ToWorker& message) const {
      auto answer = answer_(message);
      if (!message.attach) return answer;
      if (!answer) answer.emplace();
      answer->attached =
          coordinator::Attached{.incarnation = 1, .replicas = 1, .max_bytes = kMaxBytes};
      return answer;
    }

    // REQUIRES: mutex_ held.
    void write() {
      if (finished_) return;
      if (const grpc::ByteBuffer* part = outbox_.next()) StartWrite(part);
    }

    const Answer answer_;
    grpc::ByteBuffer incoming_;
    std::mutex mutex_;
    coordinator::Assembler<coordinator::ToWorker> assembler_{coordinator::decode_to_worker,
                                                             kMaxBytes};
    coordinator::Outbox outbox_;
    bool finished_ = false;
  };

  const launcher::ReservedPort port_;
  parameter_server::StreamServer server_;
};

}  // namespace cohort::testing
