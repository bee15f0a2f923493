#include "core/data/batch.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "core/data/dataset.h"

namespace cohort::data {
namespace {

// Where an element and its batch disagree, for messages.
[[noreturn]] void fail_ragged(int64_t element, int64_t row, std::string_view problem) {
  invalid("batch(): element ", element,
          " of the dataset does not fit the batch that starts at element ", element - row, ": ",
          problem);
}

void check_fits(const Element& first, const Element& other, int64_t element, int64_t row) {
  for (const Field& field : first) {
    const Tensor* tensor = other.find(field.name);
    if (tensor == nullptr)
      fail_ragged(element, row, str("it has no \"", field.name, "\" but ", other));
    if (!(tensor->spec() == field.tensor.spec()))
      fail_ragged(element, row,
                  str("\"", field.name, "\" is ", tensor->spec(), " where the batch has ",
                      field.tensor.spec()));
  }
  if (other.size() != first.size())
    fail_ragged(element, row, str("it has ", other, " where the batch has ", first));
}

// Stacks elements of equal names and specs; `start` is the number of the first, for messages.
Element stack(const std::vector<Element>& elements, int64_t start) {
  const Element& first = elements.front();
  for (size_t i = 1; i < elements.size(); ++i)
    check_fits(first, elements[i], start + static_cast<int64_t>(i), static_cast<int64_t>(i));
  std::vector<Field> fields;
  for (const Field& field : first) {
    const TensorSpec& spec = field.tensor.spec();
    Tensor batch(spec.dtype, spec.shape.with_inserted(0, static_cast<int64_t>(elements.size())));
    char* to = static_cast<char*>(batch.raw());
    for (const Element& element : elements) {
      std::memcpy(to, element[field.name].raw(), spec.bytes());
      to += spec.bytes();
    }
    fields.push_back({field.name, std::move(batch)});
  }
  return Element(std::move(fields));
}

Element make_batch(std::vector<Item>& items, int64_t start) {
  const Item& first = items.front();
  const bool rows_of_one_table =
      first.table && std::all_of(items.begin(), items.end(),
                                 [&](const Item& i) { return i.table == first.table; });
  if (rows_of_one_table) {
    std::vector<int64_t> rows;
    for (const Item& item : items) rows.push_back(item.row);
    return first.table->gather(rows);
  }
  std::vector<Element> elements;
  for (Item& item : items) elements.push_back(std::move(item).make());
  return stack(elements, start);
}

class BatchStream : public Stream {
 public:
  BatchStream(std::unique_ptr<Stream> input, int64_t size, bool drop_remainder)
      : input_(std::move(input)), size_(size), drop_remainder_(drop_remainder) {}

  std::optional<Item> next() override {
    std::optional<Element> batch = read_batch(*input_, size_, drop_remainder_, read_);
    if (!batch) return std::nullopt;
    return Item{.element = *std::move(batch)};
  }
  Position save() const override { return {"batch", {read_}, {input_->save()}}; }
  void restore(const Position& position) override {
    position.expect("batch", 1, 1);
    read_ = position.number(0);
    input_->restore(position.inputs[0]);
  }

 private:
  std::unique_ptr<Stream> input_;
  const int64_t size_;
  const bool drop_remainder_;
  int64_t read_ = 0;  // elements so far
};

}  // namespace

std::optional<Element> read_batch(Stream& input, int64_t size, bool drop_remainder, int64_t& read) {
  std::vector<Item> items;
  while (static_cast<int64_t>(items.size()) < size) {
    check_cancelled();
    std::optional<Item> item = input.next();
    if (!item) break;
    items.push_back(*std::move(item));
  }
  const int64_t rows = static_cast<int64_t>(items.size());
  if (rows == 0 || (drop_remainder && rows < size)) return std::nullopt;
  const int64_t start = std::exchange(read, read + rows);
  return make_batch(items, start);
}

std::unique_ptr<Stream> BatchSource::open(const Pass& pass) const {
  return std::make_unique<BatchStream>(input().open(pass), size_, drop_remainder_);
}

int64_t BatchSource::cardinality() const {
  const int64_t there = input().cardinality();
  return there < 0 ? there : there / size_ + (!drop_remainder_ && there % size_ > 0 ? 1 : 0);
}

Dataset Dataset::batch(int64_t size, BatchOptions options) const {
  if (size < 1) invalid("batch(", size, "): a batch has at least 1 element");
  return Dataset(std::make_shared<BatchSource>(source_, size, options.drop_remainder));
}

}  // namespace cohort::data
