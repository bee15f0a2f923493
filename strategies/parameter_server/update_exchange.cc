#include "strategies/parameter_server/update_exchange.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "core/base/error.h"
#include "proto/parameter_server.pb.h"
#include "strategies/cluster/coordination/fault.h"
#include "strategies/parameter_server/clock_table.h"
#include "strategies/parameter_server/spec_message.h"
#include "strategies/parameter_server/tensor_payload.h"
#include "strategies/parameter_server/wire.h"

namespace cohort::parameter_server {
namespace {

// Gradients that wait to be applied while more arrive; each holds its memory.
constexpr size_t kMaxRunning = 4;
// Pushes this small are applied where they arrive: waking another thread would take longer.
constexpr size_t kInlineBytes = 32 << 10;
// Parts of gradients up to this size are kept until all are there: the thread that applies a
// gradient puts it together, while the one that receives goes on.
constexpr size_t kKeptBytes = 8 << 20;
// Values are answered together up to this size.
constexpr size_t kGroupBytes = 512 << 10;

Tensor as_tensor(const TensorSpec& spec, const std::shared_ptr<Buffer>& buffer, size_t offset) {
  return Tensor(spec.dtype, spec.shape, buffer, offset);
}

double weight_of(const proto::Push& push) { return push.has_weight() ? push.weight() : 1; }

// kInvalidArgument unless the numbers of bytes that both sides compute are the same.
void require_bytes(const char* what, const std::string& shard, uint64_t given, uint64_t wanted) {
  if (given != wanted)
    invalid(what, " shard \"", shard, "\" takes ", wanted, " bytes, got ", given);
}

void require_sensible_numbers(const proto::Push& in, const std::string& shard) {
  if (in.sequence() < 1 || in.acknowledged() >= in.sequence())
    invalid("a push to shard \"", shard, "\" has the sequence number ", in.sequence(), " after ",
            in.acknowledged());
  if (!std::isfinite(in.learning_rate()))
    invalid("a push to shard \"", shard, "\" has the learning rate ", in.learning_rate());
  if (in.step() > kMaxUpdateNumber)
    invalid("a push to shard \"", shard, "\" is update ", in.step());
  if (!(weight_of(in) >= 0 && weight_of(in) <= kMaxWeight))
    invalid("a push to shard \"", shard, "\" has the weight ", weight_of(in));
  if (in.rows() < -1) invalid("a push to shard \"", shard, "\" has ", in.rows(), " rows");
}

}  // namespace

UpdateExchange::UpdateExchange(Service& service, const proto::Request& request,
                               std::shared_ptr<Start> start, std::shared_ptr<Caller> caller)
    : service_(service),
      start_(std::move(start)),
      caller_(std::move(caller)),
      timeout_(timeout_of(request.timeout_ms())) {
  std::set<const Shard*> seen;
  pushes_.reserve(static_cast<size_t>(request.update().pushes_size()));
  for (const proto::Push& push : request.update().pushes()) add(push, seen);
  for (const proto::Pull& pull : request.update().pulls()) add(pull);
  if (pushes_.empty() && pulls_.empty()) invalid("an update has no push and no pull");
}

size_t UpdateExchange::rows_bytes(const Shard& shard, int64_t rows, size_t bytes) {
  const uint64_t left = kMaxRowsBytes - rows_bytes_;
  if (static_cast<uint64_t>(rows) > left / std::max<size_t>(bytes, 1))
    fail(Code::kResourceExhausted, rows, " rows of shard \"", shard.spec().name,
         "\" in a request; the limit is ", kMaxRowsBytes, " bytes");
  rows_bytes_ += static_cast<size_t>(rows) * bytes;
  return static_cast<size_t>(rows) * bytes;
}

void UpdateExchange::add(const proto::Push& in, std::set<const Shard*>& seen) {
  Push push{.shard = service_.shard(in.shard(), in.birth()),
            .rows = in.rows(),
            .birth_wanted = in.birth() == 0};
  const ShardSpec& spec = push.shard->spec();
  if (!seen.insert(push.shard.get()).second)
    invalid("shard \"", spec.name, "\" comes twice among the pushes of a request");
  require_sensible_numbers(in, spec.name);
  push.push = {.task = start_->task,
               .mark = {.incarnation = start_->incarnation, .sequence = in.sequence()},
               .start = start_,
               .acknowledged = in.acknowledged(),
               .reported = in.reported(),
               .computed_at = {.epoch = in.epoch(), .version = in.version()},
               .learning_rate = in.learning_rate(),
               .step = in.step(),
               .weight = weight_of(in)};
  if (!in.source().empty()) {
    if (in.source_sequence() < 1)
      invalid("a push to shard \"", spec.name, "\" of \"", in.source(), "\" has no number");
    push.push.source_start = service_.require_present(in.source(), in.source_incarnation());
    push.push.source = in.source();
    push.push.source_mark = {.incarnation = in.source_incarnation(),
                             .sequence = in.source_sequence()};
  }
  read_payload(in, push);
  payload_bytes_ += push.bytes;
  pushes_.push_back(std::move(push));
}

void UpdateExchange::read_payload(const proto::Push& in, Push& push) {
  const ShardSpec& spec = push.shard->spec();
  if (in.encoding() < 0 || in.encoding() >= kNumCompressions)
    invalid("a push to shard \"", spec.name, "\" has the encoding ", in.encoding());
  push.compression = static_cast<Compression>(in.encoding());
  push.bytes = spec.spec().bytes();
  if (in.rows() >= 0) {
    push.push.rows.emplace();
    push.bytes = rows_bytes(*push.shard, in.rows(), sizeof(int64_t) + spec.row_bytes());
  }
  push.shard->check_push(push.push.rows);
  require_tensor_spec("the gradient for", spec.name, in,
                      in.rows() < 0 ? spec.spec() : spec.rows_spec(in.rows()));
  if (push.compression == Compression::kNone) {
    require_bytes("a push to", spec.name, in.payload_bytes(), push.bytes);
  } else {
    if (in.rows() >= 0)
      invalid("a push to shard \"", spec.name, "\" compresses a gradient of rows");
    check_compressed(push.compression, spec.spec(), in.payload_bytes());
    push.bytes = in.payload_bytes();
  }
}

void UpdateExchange::add(const proto::Pull& in) {
  Pull pull{.shard = service_.shard(in.shard(), in.birth()),
            .at_hand = {.epoch = in.epoch(), .version = in.version()},
            .at_least = in.at_least(),
            .part = in.part(),
            .copied = in.copied(),
            .birth_wanted = in.birth() == 0};
  const ShardSpec& spec = pull.shard->spec();
  if (in.part() < 0 || in.part() >= spec.num_parts())
    invalid("shard \"", spec.name, "\" has no part ", in.part());
  if (in.rows() < -1) invalid("a pull of shard \"", spec.name, "\" has ", in.rows(), " rows");
  if (in.rows() >= 0) {
    if (spec.whole.shape.rank() == 0)
      invalid("shard \"", spec.name, "\" is ", spec.whole, ", which has no rows");
    rows_bytes(*pull.shard, in.rows(), sizeof(int64_t) + spec.row_bytes());
    pull.rows = in.rows();
    payload_bytes_ += pull.row_bytes();
  } else if (spec.lazy) {
    invalid("shard \"", spec.name, "\" makes its rows on first use: pull the rows you need");
  }
  require_tensor_spec("the target of", spec.name, in,
                      in.rows() < 0 ? spec.spec() : spec.rows_spec(in.rows()));
  pulls_.push_back(std::move(pull));
}

size_t UpdateExchange::present_bytes() const {
  if (part_ < pushes_.size()) return pushes_[part_].bytes;
  return pulls_[part_ - pushes_.size()].row_bytes();
}

char* UpdateExchange::present_memory() {
  std::shared_ptr<Buffer>& buffer =
      part_ < pushes_.size() ? buffer_ : pulls_[part_ - pushes_.size()].row_numbers;
  if (buffer == nullptr) buffer = service_.buffers().take(present_bytes());
  return static_cast<char*>(buffer->data);
}

std::span<char> UpdateExchange::room() {
  finish_parts();
  return {present_memory() + filled_, present_bytes() - filled_};
}

bool UpdateExchange::receive(const char* data, size_t bytes) {
  return receive_kept({nullptr, data, bytes});
}

bool UpdateExchange::receive_kept(const Piece& piece) {
  const bool may_keep = piece.owner != nullptr && payload_bytes_ > kInlineBytes;
  for (size_t at = 0; at < piece.bytes;) {
    finish_parts();
    const size_t taken = std::min(piece.bytes - at, present_bytes() - filled_);
    const char* const data = piece.data + at;
    if (may_keep && part_ < pushes_.size() && present_bytes() <= kKeptBytes)
      pushes_[part_].pieces.push_back({piece.owner, data, taken});
    else if (char* const place = present_memory() + filled_; place != data)
      std::memcpy(place, data, taken);
    filled_ += taken;
    at += taken;
  }
  finish_parts();
  return may_go_on();
}

// A gradient that is all there is applied from where it is.
bool UpdateExchange::receive_shared(const std::shared_ptr<Buffer>& memory) {
  finish_parts();
  Push* push = part_ < pushes_.size() ? &pushes_[part_] : nullptr;
  if (push == nullptr || push->compression != Compression::kNone || filled_ != push->row_bytes() ||
      memory->bytes != push->bytes - filled_ || !push->shard->only_reads_gradients() ||
      reinterpret_cast<uintptr_t>(memory->data) % dtype_size(push->shard->spec().whole.dtype) != 0)
    return Exchange::receive_shared(memory);
  push->values = memory;
  filled_ = push->bytes;
  finish_parts();
  return may_go_on();
}

bool UpdateExchange::may_go_on() {
  const std::lock_guard lock(mutex_);
  paused_ = running_ >= kMaxRunning;
  return !paused_;
}

void UpdateExchange::finish_parts() {
  while (part_ < pushes_.size() + pulls_.size() && filled_ == present_bytes()) {
    if (part_ < pushes_.size()) dispatch(pushes_[part_]);
    ++part_;
    filled_ = 0;
  }
}

void UpdateExchange::assemble(Push& push) {
  push.payload = service_.buffers().take(push.bytes);
  char* target = static_cast<char*>(push.payload->data);
  for (const Piece& piece : push.pieces) {
    std::memcpy(target, piece.data, piece.bytes);
    target += piece.bytes;
  }
  push.pieces.clear();
}

void UpdateExchange::decode(Push& push) {
  if (!push.pieces.empty()) assemble(push);
  const ShardSpec& spec = push.shard->spec();
  const std::shared_ptr<Buffer> payload = std::exchange(push.payload, nullptr);
  const std::shared_ptr<Buffer> apart = std::exchange(push.values, nullptr);
  const auto& values = apart ? apart : payload;
  const size_t offset = apart ? 0 : push.row_bytes();
  if (push.rows >= 0) {
    const auto* rows = static_cast<const int64_t*>(payload->data);
    push.push.rows.emplace(rows, rows + push.rows);
    push.push.gradient = as_tensor(spec.rows_spec(push.rows), values, offset);
  } else if (push.compression == Compression::kNone) {
    push.push.gradient = as_tensor(spec.spec(), values, offset);
  } else {
    push.push.gradient = as_tensor(spec.spec(), service_.buffers().take(spec.spec().bytes()), 0);
    decompress(push.compression, static_cast<const char*>(payload->data), push.bytes,
               push.push.gradient);
  }
}

void UpdateExchange::dispatch(Push& push) {
  if (buffer_ == nullptr && push.values == nullptr && push.pieces.empty())
    buffer_ = service_.buffers().take(push.bytes);
  push.payload = std::exchange(buffer_, nullptr);
  {
    const std::lock_guard lock(mutex_);
    ++running_;
  }
  if (payload_bytes_ <= kInlineBytes && caller_->may_wait()) return apply(push);
  service_.pool().run([self = shared_from_this(), &push] { self->apply(push); });
}

void UpdateExchange::apply(Push& push) {
  std::optional<Error> error;
  try {
    decode(push);
    push.result = service_.push(*push.shard, std::move(push.push));
  } catch (const Error& thrown) {
    error = thrown;
  } catch (const std::exception& thrown) {
    error = Error(Code::kResourceExhausted,
                  str("a push to shard \"", push.shard->spec().name, "\": ", thrown.what()));
  }
  push.push = {};
  bool resume = false;
  {
    const std::lock_guard lock(mutex_);
    if (error) push.result.outcome = PushOutcome::kRefused;
    if (error && !error_) error_ = error;
    --running_;
    resume = std::exchange(paused_, false);
  }
  if (resume) caller_->resume();
  settle();
}

void UpdateExchange::complete() {
  finish_parts();
  {
    const std::lock_guard lock(mutex_);
    complete_ = true;
  }
  settle();
}

// Answers once all has arrived and been applied.
void UpdateExchange::settle() {
  {
    const std::lock_guard lock(mutex_);
    if (!complete_ || running_ > 0 || std::exchange(answered_, true)) return;
  }
  service_.say_lost(start_->task);
  if (error_) return answer_refused();
  const Pull* const missing = missing_version();
  if (missing == nullptr) return answer();
  const auto is_ready = [self = shared_from_this()] {
    return self->caller_->has_gone() || self->missing_version() == nullptr;
  };
  const auto deadline = std::chrono::steady_clock::now() + timeout_;
  // Who waits for locks is not the one who looks after all waiting.
  const auto proceed = [self = shared_from_this()](bool) {
    self->service_.pool().run([self] { self->answer(); });
  };
  const auto say = [self = shared_from_this()](bool ready) {
    if (ready) return;
    self->service_.pool().run([self] {
      if (const Pull* missing = self->missing_version())
        self->service_.name_awaited(*missing->shard);
    });
  };
  if (const auto limit = service_.time_to_name_awaited(*missing->shard); limit < deadline)
    service_.waiting_room().wait({.is_ready = is_ready, .deadline = limit, .proceed = say});
  service_.waiting_room().wait({.is_ready = is_ready, .deadline = deadline, .proceed = proceed});
}

const UpdateExchange::Pull* UpdateExchange::missing_version() const {
  const auto found = std::ranges::find_if(pulls_, [](const Pull& pull) {
    return pull.at_least > 0 && pull.shard->version() < pull.at_least;
  });
  return found == pulls_.end() ? nullptr : &*found;
}

void UpdateExchange::answer_refused() {
  if (std::ranges::all_of(pushes_, [](const Push& push) { return push.is_refused(); }))
    return caller_->refuse(*error_);
  service_.refused();
  next_pull_ = pulls_.size();
  caller_->reply();
}

void UpdateExchange::answer() {
  if (caller_->has_gone()) return;
  const Pull* const missing = missing_version();
  if (missing == nullptr) return caller_->reply();
  std::string message = str("shard \"", missing->shard->spec().name, "\" is still at version ",
                            missing->shard->version(), "; waited for version ", missing->at_least);
  std::string awaited;
  if (const ConsistencyOptions& consistency = service_.options().consistency;
      consistency.synchronous()) {
    const int needed = consistency.gradients_per_update();
    message += str(", which needs the gradients of ", needed, needed == 1 ? " worker" : " workers");
    awaited = service_.awaited_by(*missing->shard);
    if (!awaited.empty()) message += str(", and has none yet of ", awaited);
  }
  caller_->refuse(Error(Code::kDeadlineExceeded, message, only_task(awaited)));
}

struct UpdateExchange::Values {
  Piece piece;
  uint64_t version = 0;
};

UpdateExchange::Values UpdateExchange::values_of(const Pull& pull, const TakeMemory& take) const {
  Values values;
  const Shard& shard = *pull.shard;
  const size_t bytes = pull.rows >= 0 ? pull.numbers().size() * shard.spec().row_bytes()
                                      : shard.spec().spec().bytes();
  if (take && !pull.copied && pull.part == 0 && pull.rows < 0) {
    if (const auto live = shard.live()) {
      values.piece = piece_of(live->value);
      values.piece.sequence = live->sequence;
      values.version = live->version;
      return values;
    }
  }
  auto memory = take && bytes > 0 ? take(bytes) : nullptr;
  if (pull.rows >= 0) {
    if (memory == nullptr) memory = service_.buffers().take(bytes);
    values.version = shard.pull_rows(pull.part, pull.numbers(), static_cast<char*>(memory->data));
    pull.shard->forget_pulled(start_->task);
  } else if (memory != nullptr) {
    values.version = pull.shard->pull_into(pull.part, start_->task, memory->data);
  } else if (pull.part > 0) {
    values.version = shard.version();
    const Tensor part = shard.part(pull.part);
    values.piece = {part.buffer(), static_cast<const char*>(part.raw()), bytes};
  } else {
    const ShardValue published = pull.shard->pull(start_->task);
    values.version = published.version;
    const Tensor& value = published.value;
    values.piece = {value.buffer(), static_cast<const char*>(value.raw()), bytes};
  }
  if (memory != nullptr) {
    const auto* data = static_cast<const char*>(memory->data);
    values.piece = {std::move(memory), data, bytes};
  }
  return values;
}

std::optional<Message> UpdateExchange::next_message(const TakeMemory& take) {
  if (header_sent_ && next_pull_ == pulls_.size()) return std::nullopt;
  proto::Reply reply;
  proto::Updated& updated = *reply.mutable_updated();
  updated.set_epoch(service_.epoch());
  if (!std::exchange(header_sent_, true)) {
    for (const Push& push : pushes_) {
      proto::Pushed& pushed = *updated.add_pushed();
      pushed.set_outcome(static_cast<int>(push.result.outcome));
      pushed.set_version(push.result.version);
      pushed.set_staleness(push.result.staleness);
      pushed.set_lost(push.result.lost);
      if (push.birth_wanted) pushed.set_birth(push.shard->birth());
    }
    if (error_) coordination::write_fault(*error_, updated.mutable_fault());
  }
  Message message;
  size_t total = 0;
  while (next_pull_ < pulls_.size() && total < kGroupBytes) {
    const Pull& pull = pulls_[next_pull_++];
    proto::Pulled& pulled = *updated.add_pulled();
    if (pull.birth_wanted) pulled.set_birth(pull.shard->birth());
    if (pull.rows < 0 && pull.part == 0 && pull.at_hand.version > 0 &&
        pull.at_hand == ShardVersion{service_.epoch(), pull.shard->version()}) {
      pulled.set_version(pull.at_hand.version);
      pulled.set_current(true);
      continue;
    }
    Values values = values_of(pull, take);
    pulled.set_version(values.version);
    pulled.set_payload_bytes(values.piece.bytes);
    total += values.piece.bytes;
    if (values.piece.bytes > 0) message.payload.push_back(std::move(values.piece));
  }
  message.header = reply.SerializeAsString();
  return message;
}

}  // namespace cohort::parameter_server
