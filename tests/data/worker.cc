#include "tests/data/worker.h"

#include <optional>

namespace cohort::data {

Step step_of(const DistributedBatch& batch) {
  Step step;
  for (const Batch& part : batch) {
    const auto here = part["value"].values<int64_t>();
    step.emplace_back(here.begin(), here.end());
  }
  return step;
}

Steps rest(DistributedIterator& iterator) {
  Steps steps;
  while (const auto batch = iterator.next()) steps.push_back(step_of(*batch));
  return steps;
}

Steps steps(const DistributedDataset& dataset, uint64_t epoch) {
  DistributedIterator iterator = dataset.iterate({.epoch = epoch});
  return rest(iterator);
}

Dataset batches_from_a_generator(const std::vector<int64_t>& sizes) {
  return generator([sizes] {
    return [sizes, next = size_t{0}, row = int64_t{0}]() mutable -> std::optional<Element> {
      if (next == sizes.size()) return std::nullopt;
      Tensor value(DType::kInt64, {sizes[next]});
      for (int64_t i = 0; i < sizes[next]; ++i) value.data<int64_t>()[i] = row++;
      ++next;
      return Element{{"value", value}};
    };
  });
}

Dataset lists(int64_t count) {
  return range(count).map([](const Element& e) {
    const int64_t i = e["value"].values<int64_t>()[0];
    return Element{{"value", Tensor::full(DType::kInt64, {1 + i % 4}, static_cast<double>(i))}};
  });
}

}  // namespace cohort::data
