#pragma once

#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "strategies/parameter_server/compression.h"
#include "strategies/parameter_server/exchange.h"
#include "strategies/parameter_server/service.h"

namespace cohort::parameter_server::proto {
class Pull;
class Push;
class Request;
class Update;
}  // namespace cohort::parameter_server::proto

namespace cohort::parameter_server {

// Gradients in, values out. Every push is applied as soon as its own bytes are there, on the
// server's threads, while the next ones arrive; a push whose bytes do not all arrive is not applied
// at all. Pulls see all pushes of the request. Where some pushes are refused, and others are not,
// the answer says which; where all are, the request is refused.
class UpdateExchange final : public Exchange, public std::enable_shared_from_this<UpdateExchange> {
 public:
  // Checks everything but the payload. Throws what the request is to be refused with.
  UpdateExchange(Service& service, const proto::Request& request, std::shared_ptr<Start> start,
                 std::shared_ptr<Caller> caller);

  uint64_t payload_bytes() const override { return payload_bytes_; }
  std::span<char> room() override;
  bool receive(const char* data, size_t bytes) override;
  bool receive_kept(const Piece& piece) override;
  bool receive_shared(const std::shared_ptr<Buffer>& memory) override;
  void complete() override;
  std::optional<Message> next_message(const TakeMemory& take) override;

 private:
  struct Push {
    std::shared_ptr<Shard> shard;
    IncomingPush push;
    int64_t rows = -1;
    bool birth_wanted = false;
    Compression compression = Compression::kNone;
    size_t bytes = 0;           // of its payload
    std::vector<Piece> pieces;  // of the payload, where they are kept as they arrived
    std::shared_ptr<Buffer> payload;
    std::shared_ptr<Buffer> values;  // where these are not in the payload
    PushResult result;

    size_t row_bytes() const { return rows > 0 ? static_cast<size_t>(rows) * sizeof(int64_t) : 0; }
    bool is_refused() const { return result.outcome == PushOutcome::kRefused; }
  };
  struct Pull {
    std::shared_ptr<Shard> shard;
    ShardVersion at_hand;
    uint64_t at_least = 0;
    int part = 0;
    int64_t rows = -1;
    bool copied = false;
    bool birth_wanted = false;
    std::shared_ptr<Buffer> row_numbers;

    size_t row_bytes() const { return rows > 0 ? static_cast<size_t>(rows) * sizeof(int64_t) : 0; }
    std::span<const int64_t> numbers() const {
      if (rows <= 0) return {};
      return {static_cast<const int64_t*>(row_numbers->data), static_cast<size_t>(rows)};
    }
  };

  void add(const proto::Push& push, std::set<const Shard*>& seen);
  void add(const proto::Pull& pull);
  // What is to come of its gradient, and whether that fits the shard.
  void read_payload(const proto::Push& in, Push& push);
  // The memory of `rows` rows of `bytes` each, which is limited for all of a request together.
  size_t rows_bytes(const Shard& shard, int64_t rows, size_t bytes);
  // The bytes of the part of the payload that arrives now.
  size_t present_bytes() const;
  char* present_memory();
  // Ends parts that are complete, and those without any bytes.
  void finish_parts();
  bool may_go_on();
  void dispatch(Push& push);
  void apply(Push& push);
  void assemble(Push& push);
  void decode(Push& push);
  void settle();
  void answer_refused();
  void answer();
  // The first that waits for a version that is not there yet; or null.
  const Pull* missing_version() const;
  struct Values;
  Values values_of(const Pull& pull, const TakeMemory& take) const;

  Service& service_;
  const std::shared_ptr<Start> start_;
  const std::shared_ptr<Caller> caller_;
  const std::chrono::milliseconds timeout_;
  std::vector<Push> pushes_;
  std::vector<Pull> pulls_;
  uint64_t payload_bytes_ = 0, rows_bytes_ = 0;

  // Of the payload that arrives: which part, how much of it, and where it goes.
  size_t part_ = 0, filled_ = 0;
  std::shared_ptr<Buffer> buffer_;

  std::mutex mutex_;
  size_t running_ = 0;  // pushes that are being applied, or wait for it
  bool paused_ = false, complete_ = false, answered_ = false;
  std::optional<Error> error_;  // of the first push that is refused

  bool header_sent_ = false;
  size_t next_pull_ = 0;
};

}  // namespace cohort::parameter_server
