#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/data/source.h"

namespace cohort::data {

// That of all inputs together.
int64_t total_cardinality(const std::vector<SourcePtr>& inputs);
// The batch size that all inputs have; nothing where they differ. Asks each of them once.
std::optional<int64_t> common_batch_size(const std::vector<SourcePtr>& inputs);

// A source of several inputs, whose elements are those of each of them. `Derived` has to be
// copyable.
template <typename Derived>
class Union : public Source {
 public:
  explicit Union(std::vector<SourcePtr> inputs) : inputs_(std::move(inputs)) {}
  int64_t cardinality() const override { return total_cardinality(inputs_); }
  std::optional<int64_t> batch_size() const override { return common_batch_size(inputs_); }
  bool may_yield_batches() const override {
    return std::ranges::all_of(inputs_,
                               [](const SourcePtr& input) { return input->may_yield_batches(); });
  }
  std::vector<SourcePtr> inputs() const override { return inputs_; }
  SourcePtr with_inputs(const std::vector<SourcePtr>& inputs) const override {
    auto copy = std::make_shared<Derived>(static_cast<const Derived&>(*this));
    static_cast<Union&>(*copy).inputs_ = inputs;
    return copy;
  }

 private:
  std::vector<SourcePtr> inputs_;
};

// Looks, in one pass, whether the inputs of a union have elements of the same names and dtypes.
class SameSignature {
 public:
  // `what` makes the union: "concatenate".
  explicit SameSignature(std::string_view what) : what_(what) {}

  // Compares the first item of each input with the first of all; kInvalidArgument that names both
  // inputs, by their numbers, and both elements.
  void require(const Item& item, size_t input);

 private:
  struct Seen {
    size_t input;
    std::map<std::string, DType> dtypes;  // by name
    std::string in_words;
  };

  const std::string what_;
  std::optional<Seen> first_;
  std::vector<bool> seen_;  // by input
};

}  // namespace cohort::data
