#include "strategies/parameter_server/shard.h"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <shared_mutex>
#include <utility>

#include "core/base/error.h"
#include "core/base/prefetch.h"
#include "strategies/parameter_server/finite.h"

namespace cohort::parameter_server {
namespace {

// In the memory of `initial`, where nobody else has it.
std::shared_ptr<Variable> make_part(const std::string& name, Tensor initial) {
  return make_local_variable(
      {.name = name, .spec = initial.spec(), .initial_value = [&] { return std::move(initial); }});
}

std::string part_name(const ShardSpec& spec, int part) {
  return part == 0 ? std::string(kValuePart)
                   : spec.update.slots[static_cast<size_t>(part - 1)].name;
}

Parts by_name(const std::vector<std::shared_ptr<Variable>>& variables) {
  Parts parts;
  for (const auto& variable : variables) parts.emplace(variable->name(), variable);
  return parts;
}

// g += lambda g g (now - then)
template <typename T>
void compensate_delay(T* g, const T* now, const T* then, int64_t count, double lambda) {
  using Wide = std::conditional_t<sizeof(T) == 8, double, float>;
  const auto factor = static_cast<Wide>(lambda);
  for (int64_t i = 0; i < count; ++i) {
    const auto x = static_cast<Wide>(g[i]);
    g[i] = T(x + factor * x * x * (static_cast<Wide>(now[i]) - static_cast<Wide>(then[i])));
  }
}

// What is only added to is moved by no optimizer, and need not wait.
bool waits_for_others(const ShardSpec& spec, const Shard::Environment& environment) {
  return environment.consistency.synchronous() && !only_adds(spec.update, spec.spec());
}

// What is added up is not computed from the value, and has no delay.
bool has_delays(const ShardSpec& spec, const Shard::Environment& environment) {
  return environment.consistency.delay_compensation > 0 && is_floating(spec.whole.dtype) &&
         !only_adds(spec.update, spec.spec());
}

// Null where the updates are so small that one thread makes them.
UpdateTeam* team_for(const ShardSpec& spec, const Shard::Environment& environment) {
  return spec.spec().bytes() < kTeamBytes ? nullptr : environment.team;
}

// Rows lie anywhere: the processor does not guess the next one, and memory answers after some
// hundred cycles.
constexpr size_t kRowsAhead = 8;
constexpr size_t kMostPrefetched = 16 * kCacheLine;  // after that it does guess

void prefetch_row(const char* row, size_t bytes) {
  for (size_t at = 0; at < std::min(bytes, kMostPrefetched); at += kCacheLine)
    prefetch(row + at, true);
}

}  // namespace

Shard::Shard(ShardSpec spec, uint64_t birth, const Environment& environment)
    : spec_(std::move(spec)),
      birth_(birth),
      environment_(environment),
      makes_rounds_(waits_for_others(spec_, environment)),
      compensates_(has_delays(spec_, environment)),
      team_(team_for(spec_, environment)),
      memory_(environment.budget) {}

Shard::Shard(ShardSpec spec, Tensor initial, const Environment& environment, uint64_t birth)
    : Shard(std::move(spec), birth, environment) {
  if (spec_.lazy) {
    table_.emplace(spec_, environment_.budget);
  } else {
    if (!(initial.spec() == spec_.spec()) || !initial.defined())
      invalid("shard \"", spec_.name, "\" is ", spec_.spec(), ", its initial value is ",
              initial.spec());
    was_finite_ = is_finite(initial);
    take_memory();
    std::vector<Tensor> parts = {std::move(initial)};
    for (const auto& slot : spec_.update.slots)
      parts.push_back(Tensor::full(spec_.whole.dtype, spec_.spec().shape, slot.initial));
    begin_with(std::move(parts));
  }
  compile();
}

Shard::Shard(ShardState state, const Environment& environment)
    : Shard(state.spec, state.birth, environment) {
  if (spec_.lazy) {
    table_.emplace(spec_, environment_.budget);
  } else {
    was_finite_ = is_finite(state.parts[0]);
    take_memory();
    begin_with(std::move(state.parts));
  }
  compile();
  const uint64_t version = state.version;
  if (spec_.lazy) {
    restore(std::move(state));
  } else {
    updates_ = state.updates;
    marks_ = std::move(state.marks);
  }
  version_ = version;
}

void Shard::take_memory() {
  memory_.add(static_cast<size_t>(spec_.num_parts()) * spec_.spec().bytes(), spec_.name);
}

void Shard::begin_with(std::vector<Tensor> parts) {
  if (environment_.values != nullptr) {
    auto [memory, guard] = environment_.values->take(parts[0].bytes());
    if (memory != nullptr) {
      std::memcpy(memory->data, parts[0].raw(), parts[0].bytes());
      parts[0] = Tensor(parts[0].dtype(), parts[0].shape(), std::move(memory));
      guard_ = guard;
    }
  }
  for (int part = 0; part < spec_.num_parts(); ++part)
    parts_.push_back(
        make_part(part_name(spec_, part), std::move(parts[static_cast<size_t>(part)])));
  if (guard_ != nullptr)
    COHORT_CHECK(guard_ == &guard_of(static_cast<const char*>(storage(0).raw())));
}

void Shard::compile() {
  feeds_ = {Tensor(), Tensor(DType::kFloat64, {}), Tensor(DType::kFloat64, {})};
  if (!spec_.update.dense.empty())
    on_team([this](int threads) {
      plan_ = compile_update(spec_.update.dense, by_name(parts_), threads);
    });
  if (spec_.update.by_rows.empty()) return;
  const TensorSpec block{spec_.whole.dtype, spec_.whole.shape.with_dim(0, spec_.update.row_block)};
  for (int part = 0; part < spec_.num_parts(); ++part)
    block_parts_.push_back(
        make_part(part_name(spec_, part), Tensor::full(block.dtype, block.shape, 1)));
  block_gradient_ = Tensor::zeros(block.dtype, block.shape);
  row_plan_ = compile_update(spec_.update.by_rows, by_name(block_parts_));
}

Tensor Shard::storage(int part) const { return parts_[static_cast<size_t>(part)]->storage(0); }

size_t Shard::bytes() const {
  const std::shared_lock lock(mutex_);
  return table_ ? table_->bytes() : parts_.size() * spec_.spec().bytes();
}

int64_t Shard::rows_in_use() const {
  const std::shared_lock lock(mutex_);
  return table_ ? table_->rows_in_use() : spec_.rows;
}

void Shard::require_rows(std::span<const int64_t> rows) const {
  if (spec_.whole.shape.rank() == 0)
    invalid("shard \"", spec_.name, "\" is ", spec_.whole, ", which has no rows");
  for (const int64_t row : rows)
    if (row < 0 || row >= spec_.rows)
      fail(Code::kOutOfRange, "row ", row, " of shard \"", spec_.name, "\" (allowed: 0 to ",
           spec_.rows - 1, ")");
}

int Shard::require_part(int part) const {
  if (part < 0 || part >= spec_.num_parts())
    invalid("shard \"", spec_.name, "\" has no part ", part, "; it has a value and ",
            spec_.update.slots.size(), " slots");
  return part;
}

void Shard::check_push(const std::optional<std::vector<int64_t>>& rows) const {
  if (rows) require_rows(*rows);
  if (rows ? row_plan_ != nullptr : plan_ != nullptr) return;
  if (spec_.update.dense.empty() && spec_.update.by_rows.empty())
    invalid("shard \"", spec_.name, "\" is not trained: it was created without an update");
  invalid("shard \"", spec_.name, "\" takes no ", rows ? "gradient of rows" : "dense gradient",
          rows ? ": its optimizer moves all rows" : "");
}

PushResult Shard::push(IncomingPush push) {
  check_push(push.rows);
  if (push.rows && !makes_rounds_) {
    // Sorting takes as long as the update, and needs no lock.
    RowGradient sorted = combine_rows({std::move(*push.rows), std::move(push.gradient)});
    push.rows = std::move(sorted.rows);
    push.gradient = std::move(sorted.values);
  }
  const std::lock_guard lock(mutex_);
  refuse_if_retired(push.start);
  refuse_if_retired(push.source_start);
  PushResult result{.version = version_};
  if (!is_new(push.task, push.mark)) return repeated(push);
  const uint64_t known = std::max(last_of(push.task, push.mark.incarnation), push.reported);
  if (push.acknowledged > known) {
    result.lost = push.acknowledged - known;
    losses_[push.task] = {push.mark, result.lost};
  }
  if (!push.source.empty() && !is_new(push.source, push.source_mark)) {
    mark_only({{push.task, push.mark}});
    result.outcome = PushOutcome::kRepeated;
    return result;
  }
  if (makes_rounds_) return count(push, result);
  const uint64_t since = push.computed_at.version;
  result.staleness = since > 0 && since < version_ ? version_ - since : 0;
  double rate = push.learning_rate;
  if (environment_.consistency.scale_learning_rate && result.staleness > 1)
    rate /= static_cast<double>(result.staleness);
  compensate(push);
  Marks marks = {{push.task, push.mark}};
  if (!push.source.empty()) marks[push.source] = push.source_mark;
  if (push.rows && push.rows->empty()) {  // it only says that it was there
    mark_only(std::move(marks));
  } else {
    const AppliedGradient gradient{.values = std::move(push.gradient),
                                   .rows = std::move(push.rows),
                                   .learning_rate = rate,
                                   .number = std::max(updates_ + 1, push.step)};
    or_forget(make_rows(gradient), [&] { record(marks, gradient); });
    apply(gradient);
    set_marks(std::move(marks));
  }
  result.version = version_;
  return result;
}

void Shard::mark_only(Marks marks) {
  record(marks, std::monostate());
  set_marks(std::move(marks));
}

void Shard::set_marks(Marks marks) noexcept {
  while (!marks.empty()) {
    const auto done = marks_.insert(marks.extract(marks.begin()));
    if (!done.inserted) done.position->second = done.node.mapped();
  }
}

uint64_t Shard::last_of(const std::string& source, uint64_t incarnation) const {
  const auto last = marks_.find(source);
  return last == marks_.end() || last->second.incarnation != incarnation ? 0
                                                                         : last->second.sequence;
}

bool Shard::is_new(const std::string& source, const Mark& mark) const {
  return last_of(source, mark.incarnation) < mark.sequence;
}

PushResult Shard::repeated(const IncomingPush& push) const {
  const bool waits = round_.has(push.task);
  const auto loss = losses_.find(push.task);
  return {.outcome = PushOutcome::kRepeated,
          .version = version_ + (waits ? 1 : 0),
          .lost = loss != losses_.end() && loss->second.mark == push.mark ? loss->second.pushes : 0,
          .again = true};
}

void Shard::compensate(IncomingPush& push) {
  if (!compensates_ || push.rows) return;
  const auto pulled = pulled_.find(push.task);
  if (pulled == pulled_.end() || pulled->second.version == version_) return;
  dispatch(FloatTypes{}, spec_.whole.dtype, "delay compensation", [&]<typename T>() {
    compensate_delay(push.gradient.data<T>(), storage(0).data<T>(), pulled->second.value.data<T>(),
                     push.gradient.num_elements(), environment_.consistency.delay_compensation);
  });
}

std::vector<int64_t> Shard::make_rows(const AppliedGradient& gradient) {
  return table_ && gradient.rows ? table_->make(*gradient.rows) : std::vector<int64_t>();
}

void Shard::apply(const AppliedGradient& gradient) {
  const ValueWriting writing(guard_);
  *feeds_[2].data<double>() = static_cast<double>(gradient.number);
  if (gradient.rows)
    apply_rows(*gradient.rows, gradient.values, gradient.learning_rate);
  else
    on_team([&](int) { run(*plan_, gradient.values, gradient.learning_rate); });
  updates_ = gradient.number;
  ++version_;
}

void Shard::replay(const Change& change) {
  const std::lock_guard lock(mutex_);
  if (const auto* gradient = std::get_if<AppliedGradient>(&change.what)) {
    check_push(gradient->rows);
    if (gradient->rows && !is_ascending(*gradient->rows))
      invalid("shard \"", spec_.name, "\" was moved by rows that are not in order");
    make_rows(*gradient);
    apply(*gradient);
  } else if (const auto* part = std::get_if<AssignedPart>(&change.what)) {
    require_part(part->part);
    require_value(part->value);
    overwrite(*part);
  } else if (const auto* rows = std::get_if<AssignedRows>(&change.what)) {
    require_table();
    require_part(rows->part);
    require_rows(rows->rows);
    overwrite(*rows, table_->make(rows->rows));
  }
  for (const auto& [task, mark] : change.marks) marks_[task] = mark;
}

void Shard::on_team(const std::function<void(int threads)>& work) const {
  if (team_ == nullptr) return work(1);
  team_->run([&] { work(team_->threads()); });
}

void Shard::run(Plan& plan, const Tensor& gradient, double learning_rate) {
  if (gradient.num_elements() == 0) return;
  feeds_[0] = gradient;
  *feeds_[1].data<double>() = learning_rate;
  plan.run(feeds_, StepInfo{}, outputs_);
  feeds_[0] = Tensor();
}

// Blocks of rows are copied out, updated and copied back. Each row comes once.
void Shard::apply_rows(std::span<const int64_t> rows, const Tensor& values, double learning_rate) {
  const size_t row_bytes = spec_.row_bytes();
  const auto block = static_cast<size_t>(spec_.update.row_block);
  const size_t count = rows.size();
  const auto base_of = [&](size_t part) {
    return table_ ? nullptr : static_cast<char*>(storage(static_cast<int>(part)).raw());
  };
  const auto place = [&](size_t part, char* base, int64_t row) {
    return table_ ? table_->at(static_cast<int>(part), row)
                  : base + static_cast<size_t>(row) * row_bytes;
  };
  const auto* source = static_cast<const char*>(values.raw());
  for (size_t begin = 0; begin < count; begin += block) {
    const size_t size = std::min(block, count - begin);
    for (size_t part = 0; part < block_parts_.size(); ++part) {
      auto* to = static_cast<char*>(block_parts_[part]->storage(0).raw());
      char* const base = base_of(part);
      for (size_t i = 0; i < size; ++i) {
        if (const size_t ahead = begin + i + kRowsAhead; base != nullptr && ahead < count)
          prefetch_row(place(part, base, rows[ahead]), row_bytes);
        std::memcpy(to + i * row_bytes, place(part, base, rows[begin + i]), row_bytes);
      }
    }
    std::memcpy(block_gradient_.raw(), source + begin * row_bytes, size * row_bytes);
    run(*row_plan_, block_gradient_, learning_rate);
    for (size_t part = 0; part < block_parts_.size(); ++part) {
      const auto* from = static_cast<const char*>(block_parts_[part]->storage(0).raw());
      char* const base = base_of(part);
      for (size_t i = 0; i < size; ++i)
        std::memcpy(place(part, base, rows[begin + i]), from + i * row_bytes, row_bytes);
    }
  }
}

Marks Shard::marks() const {
  const std::shared_lock lock(mutex_);
  return marks_;
}

Mark Shard::mark_of(const std::string& task) const {
  const std::shared_lock lock(mutex_);
  const auto found = marks_.find(task);
  return found == marks_.end() ? Mark{} : found->second;
}

bool Shard::has_come(const std::string& task, const Mark& mark) const {
  const std::shared_lock lock(mutex_);
  return !is_new(task, mark);
}

bool Shard::skip(const std::string& task, const Mark& from, const Mark& to) {
  const std::lock_guard lock(mutex_);
  Mark& mark = marks_[task];
  if (!(mark == from)) return false;
  mark = to;
  return true;
}

}  // namespace cohort::parameter_server
