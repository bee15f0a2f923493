#include "core/data/union.h"

#include "core/data/dataset.h"

namespace cohort::data {

int64_t total_cardinality(const std::vector<SourcePtr>& inputs) {
  int64_t total = 0;
  bool is_known = true;
  for (const SourcePtr& input : inputs) {
    const int64_t there = input->cardinality();
    is_known = is_known && there != kUnknown;
    if (there == kInfinite || (there > 0 && __builtin_add_overflow(total, there, &total)))
      return kInfinite;
  }
  return is_known ? total : kUnknown;
}

std::optional<int64_t> common_batch_size(const std::vector<SourcePtr>& inputs) {
  const std::optional<int64_t> first = inputs.front()->batch_size();
  const auto has_first = [&](const SourcePtr& input) { return input->batch_size() == first; };
  return std::all_of(inputs.begin() + 1, inputs.end(), has_first) ? first : std::nullopt;
}

void SameSignature::require(const Item& item, size_t input) {
  if (seen_.size() <= input) seen_.resize(input + 1);
  if (seen_[input]) return;
  seen_[input] = true;
  const Element element = item.make();
  std::map<std::string, DType> dtypes;
  for (const Field& field : element) dtypes.emplace(field.name, field.tensor.dtype());
  if (!first_) {
    first_ = Seen{input, std::move(dtypes), str(element)};
    return;
  }
  if (dtypes != first_->dtypes)
    invalid(what_, "(): the elements of dataset ", input, ", such as ", element,
            ", have other names or dtypes than those of dataset ", first_->input, ", such as ",
            first_->in_words);
}

}  // namespace cohort::data
