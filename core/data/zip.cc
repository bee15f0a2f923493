#include <algorithm>
#include <utility>

#include "core/data/dataset.h"
#include "core/data/union.h"

namespace cohort::data {
namespace {

Element merge(Element a, const Element& b) {
  for (const Field& field : b) {
    if (a.contains(field.name))
      invalid("zip(): both datasets have a tensor named \"", field.name, "\"");
    a.set(field.name, field.tensor);
  }
  return a;
}

class ZipStream : public Stream {
 public:
  // With `ends_both`, `b` is asked for its end, too, when `a` has come to its own.
  ZipStream(std::unique_ptr<Stream> a, std::unique_ptr<Stream> b, bool ends_both)
      : a_(std::move(a)), b_(std::move(b)), ends_both_(ends_both) {}

  std::optional<Item> next() override {
    if (ended_) return std::nullopt;
    std::optional<Item> a = a_->next();
    std::optional<Item> b = a || ends_both_ ? b_->next() : std::nullopt;
    ended_ = !a || !b;
    if (ended_) return std::nullopt;
    return Item{.element = merge(std::move(*a).make(), std::move(*b).make())};
  }
  Position save() const override { return {"zip", {ended_}, {a_->save(), b_->save()}}; }
  void restore(const Position& position) override {
    position.expect("zip", 1, 2);
    ended_ = position.number(0, 1) != 0;
    a_->restore(position.inputs[0]);
    b_->restore(position.inputs[1]);
  }

 private:
  std::unique_ptr<Stream> a_, b_;
  const bool ends_both_;
  bool ended_ = false;  // with the shorter; the longer may have more
};

// As far as is known.
bool is_longer(const Source& source, const Source& other) {
  const int64_t count = source.cardinality(), of_other = other.cardinality();
  return count == kInfinite || (of_other >= 0 && count > of_other);
}

class ZipSource : public Source {
 public:
  ZipSource(SourcePtr a, SourcePtr b) : a_(std::move(a)), b_(std::move(b)) {}
  std::unique_ptr<Stream> open(const Pass& pass) const override {
    const Pass each = of_inputs(pass);
    return std::make_unique<ZipStream>(a_->open(each), b_->open(each),
                                       b_->keeps_passes() && !is_longer(*b_, *a_));
  }
  int64_t cardinality() const override {
    const int64_t a = a_->cardinality(), b = b_->cardinality();
    if (a == kInfinite) return b;
    if (b == kInfinite) return a;
    return a == kUnknown || b == kUnknown ? kUnknown : std::min(a, b);
  }
  std::optional<int64_t> batch_size() const override { return common_batch_size(inputs()); }
  bool may_yield_batches() const override {
    return a_->may_yield_batches() && b_->may_yield_batches();
  }
  std::optional<Stage> stage(const Unseeded&) const override { return Stage{.call = "zip()"}; }
  // Each element is of both, and so of a share where one side is.
  bool is_share() const override { return a_->is_share() || b_->is_share(); }
  std::vector<SourcePtr> inputs() const override { return {a_, b_}; }
  SourcePtr with_inputs(const std::vector<SourcePtr>& inputs) const override {
    return std::make_shared<ZipSource>(inputs.at(0), inputs.at(1));
  }

 private:
  SourcePtr a_, b_;
};

}  // namespace

Dataset zip(const Dataset& a, const Dataset& b) {
  return Dataset(std::make_shared<ZipSource>(a.source(), b.source()));
}

}  // namespace cohort::data
