#include "core/data/dataset.h"

#include <utility>

#include "core/data/source.h"

namespace cohort::data {

SourcePtr Source::with_inputs(const std::vector<SourcePtr>&) const {
  fail(Code::kInternal, "this source has no inputs");
}

// NOLINTNEXTLINE(performance-unnecessary-value-param): for those that override it, who keep them
SourcePtr Source::with_files(std::vector<std::string>) const {
  fail(Code::kInternal, "this source reads no files");
}

// The stream comes last, so that it goes before the source it refers to.
struct Iterator::State {
  std::shared_ptr<const Source> source;
  bool is_counted;  // among the passes of the source
  uint64_t epoch;
  std::unique_ptr<Stream> stream;

  State(std::shared_ptr<const Source> s, bool counted, uint64_t e)
      : source(std::move(s)),
        is_counted(counted),
        epoch(e),
        stream(source->open({.epoch = epoch})) {}
};

Iterator::Iterator(const std::shared_ptr<const Source>& source, const IterateOptions& options)
    : state_(std::make_unique<State>(source, !options.epoch,
                                     options.epoch ? *options.epoch : source->count_pass())) {}
Iterator::Iterator(Iterator&&) noexcept = default;
Iterator& Iterator::operator=(Iterator&&) noexcept = default;
Iterator::~Iterator() = default;

std::optional<Element> Iterator::next() {
  std::optional<Item> item = state_->stream->next();
  if (!item) return std::nullopt;
  return std::move(*item).make();
}

uint64_t Iterator::epoch() const { return state_->epoch; }

std::string Iterator::save() const {
  return to_json({"iterator", {static_cast<int64_t>(state_->epoch)}, {state_->stream->save()}});
}

void Iterator::restore(std::string_view text) {
  const Position position = position_from_json(text);
  position.expect("iterator", 1, 1);
  auto state = std::make_unique<State>(state_->source, state_->is_counted,
                                       static_cast<uint64_t>(position.numbers[0]));
  state->stream->restore(position.inputs[0]);
  state_ = std::move(state);
  if (state_->is_counted) state_->source->count_passes_from(state_->epoch + 1);
}

Dataset::Dataset(std::shared_ptr<const Source> source) : source_(std::move(source)) {
  if (source_ == nullptr) invalid("Dataset: its source is null");
}

Iterator Dataset::iterate(IterateOptions options) const { return Iterator(source_, options); }

int64_t Dataset::cardinality() const { return source_->cardinality(); }

std::optional<int64_t> Dataset::batch_size() const { return source_->batch_size(); }

}  // namespace cohort::data
