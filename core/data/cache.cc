#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "core/data/dataset.h"
#include "core/data/source.h"

namespace cohort::data {
namespace {

using Items = std::vector<Item>;

// The elements of a complete pass over an input, and of one over each share of it, once there was
// one. Thread-safe.
class CachedPass {
 public:
  std::shared_ptr<const Items> get() const {
    std::lock_guard lock(mutex_);
    return items_;
  }
  void set(std::shared_ptr<const Items> items) {
    std::lock_guard lock(mutex_);
    if (!items_) items_ = std::move(items);
  }
  std::shared_ptr<CachedPass> of_share(const std::string& share) {
    std::lock_guard lock(mutex_);
    std::shared_ptr<CachedPass>& pass = shares_[share];
    if (!pass) pass = std::make_shared<CachedPass>();
    return pass;
  }

 private:
  mutable std::mutex mutex_;
  std::shared_ptr<const Items> items_;
  std::map<std::string, std::shared_ptr<CachedPass>> shares_;
};

// Reads what is cached, or else the input, which it then caches if it gets to the end.
class CacheStream : public Stream {
 public:
  CacheStream(const Source& source, const Pass& pass, CachedPass& cache)
      : source_(source), pass_(pass), cache_(cache) {}

  std::optional<Item> next() override {
    if (!cached_ && !input_) begin();
    if (!cached_) return read();
    if (index_ == cached_->size()) return std::nullopt;
    return (*cached_)[index_++];
  }
  Position save() const override { return {"cache", {static_cast<int64_t>(index_)}, {}}; }
  void restore(const Position& position) override {
    position.expect("cache", 1, 0);
    if (skip(position.number(0)) != position.number(0)) position.fail_corrupt();
  }

 private:
  // To open the input may be to call a function of the user's, as a generator's is.
  void begin() {
    cached_ = cache_.get();
    if (!cached_) input_ = source_.open(pass_);
  }

  std::optional<Item> read() {
    const bool was_whole = std::exchange(is_whole_, false);  // and is not, where next() throws
    std::optional<Item> item = input_->next();
    is_whole_ = was_whole;
    if (item) {
      read_.push_back(*item);
      ++index_;
    } else if (is_whole_) {
      cached_ = std::make_shared<Items>(std::move(read_));
      cache_.set(cached_);
    }
    return item;
  }

  const Source& source_;  // of the input
  const Pass pass_;       // over it
  CachedPass& cache_;
  std::unique_ptr<Stream> input_;  // once something of it is read
  std::shared_ptr<const Items> cached_;
  Items read_;            // by this pass, while nothing is cached
  bool is_whole_ = true;  // nothing was missed by an error
  size_t index_ = 0;
};

class CacheSource : public Decorator<CacheSource> {
 public:
  explicit CacheSource(SourcePtr input,
                       std::shared_ptr<CachedPass> cache = std::make_shared<CachedPass>())
      : Decorator(std::move(input)), cache_(std::move(cache)) {}
  // Of another input, another pass is kept.
  CacheSource(const CacheSource& other)
      : Decorator(other), cache_(std::make_shared<CachedPass>()) {}
  SourcePtr with_share(const std::vector<SourcePtr>& inputs,
                       const std::string& share) const override {
    return std::make_shared<CacheSource>(inputs.at(0), cache_->of_share(share));
  }
  std::unique_ptr<Stream> open(const Pass& pass) const override {
    // Always the same pass of a pipeline: which one fills the cache must not matter,
    // also to who needs the order of the elements.
    const Pass kept{.pipeline = pass.pipeline, .in_order = true};
    return std::make_unique<CacheStream>(
        input(), kept,
        pass.pipeline == 0 ? *cache_ : *cache_->of_share(str("pipeline ", pass.pipeline)));
  }
  bool is_ordered() const override { return true; }
  bool keeps_passes() const override { return true; }

 private:
  std::shared_ptr<CachedPass> cache_;
};

}  // namespace

Dataset Dataset::cache() const {
  if (cardinality() == kInfinite) invalid("cache(): an endless dataset cannot be kept in memory");
  return Dataset(std::make_shared<CacheSource>(source_));
}

}  // namespace cohort::data
