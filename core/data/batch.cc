#include "core/data/batch.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "core/data/dataset.h"
#include "core/data/padding.h"

namespace cohort::data {
namespace {

// Where item `i` and the first one disagree, for messages.
[[noreturn]] void fail_ragged(const StackedItems& which, size_t i, std::string_view problem) {
  invalid(which.maker, "(): element ", which.start + static_cast<int64_t>(i) * which.stride,
          " of the dataset does not fit the batch that starts at element ", which.start, ": ",
          problem);
}

void check_fits(const Element& first, const Element& other, const StackedItems& which, size_t i) {
  for (const Field& field : first) {
    const Tensor* tensor = other.find(field.name);
    if (tensor == nullptr) fail_ragged(which, i, str("it has no \"", field.name, "\" but ", other));
    if (!(tensor->spec() == field.tensor.spec()))
      fail_ragged(which, i,
                  str("\"", field.name, "\" is ", tensor->spec(), " where the batch has ",
                      field.tensor.spec()));
  }
  if (other.size() != first.size())
    fail_ragged(which, i, str("it has ", other, " where the batch has ", first));
}

Element stack_elements(const std::vector<Element>& elements, const StackedItems& which) {
  const Element& first = elements.front();
  for (size_t i = 1; i < elements.size(); ++i) check_fits(first, elements[i], which, i);
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

std::vector<Element> make_all(std::vector<Item> items) {
  std::vector<Element> elements;
  for (Item& item : items) elements.push_back(std::move(item).make());
  return elements;
}

std::string_view maker_of(const Padding* padding) { return padding ? "padded_batch" : "batch"; }

// The next `size` items, or the fewer that are left, none where these are to be dropped.
std::vector<Item> read_items(Stream& input, int64_t size, bool drop_remainder) {
  std::vector<Item> items;
  while (static_cast<int64_t>(items.size()) < size) {
    check_cancelled();
    std::optional<Item> item = input.next();
    if (!item) break;
    items.push_back(*std::move(item));
  }
  if (drop_remainder && static_cast<int64_t>(items.size()) < size) items.clear();
  return items;
}

class BatchStream : public Stream {
 public:
  BatchStream(std::unique_ptr<Stream> input, int64_t size, bool drop_remainder,
              const Padding* padding)
      : input_(std::move(input)), size_(size), drop_remainder_(drop_remainder), padding_(padding) {}

  std::optional<Item> next() override {
    std::optional<Element> batch = read_batch(*input_, size_, drop_remainder_, read_, padding_);
    if (!batch) return std::nullopt;
    return Item{.element = *std::move(batch)};
  }
  Position save() const override {
    return {std::string(maker_of(padding_)), {read_}, {input_->save()}};
  }
  void restore(const Position& position) override {
    position.expect(maker_of(padding_), 1, 1);
    read_ = position.number(0);
    input_->restore(position.inputs[0]);
  }

 private:
  std::unique_ptr<Stream> input_;
  const int64_t size_;
  const bool drop_remainder_;
  const Padding* const padding_;  // null for none
  int64_t read_ = 0;              // elements so far
};

}  // namespace

Element stack(std::vector<Item> items, const StackedItems& which) {
  const Item& first = items.front();
  const bool rows_of_one_table =
      first.table && std::all_of(items.begin(), items.end(),
                                 [&](const Item& i) { return i.table == first.table; });
  if (rows_of_one_table) {
    std::vector<int64_t> rows;
    for (const Item& item : items) rows.push_back(item.row);
    return first.table->gather(rows);
  }
  return stack_elements(make_all(std::move(items)), which);
}

std::optional<Element> read_batch(Stream& input, int64_t size, bool drop_remainder, int64_t& read,
                                  const Padding* padding) {
  std::vector<Item> items = read_items(input, size, drop_remainder);
  if (items.empty()) return std::nullopt;
  const int64_t start = std::exchange(read, read + static_cast<int64_t>(items.size()));
  const StackedItems which{.maker = maker_of(padding), .start = start};
  if (padding == nullptr) return stack(std::move(items), which);
  std::vector<Element> elements = make_all(std::move(items));
  try {
    padding->pad(elements);
  } catch (const Error& error) {
    throw error.with_context(str("padded_batch(): elements ", start, " to ", read - 1));
  }
  return stack_elements(elements, which);
}

int64_t count_batches(int64_t elements, int64_t size, bool drop_remainder) {
  if (elements < 0) return elements;
  return elements / size + (!drop_remainder && elements % size > 0 ? 1 : 0);
}

std::unique_ptr<Stream> BatchSource::open(const Pass& pass) const {
  return std::make_unique<BatchStream>(input().open(pass), size_, drop_remainder_, padding());
}

int64_t BatchSource::cardinality() const {
  return count_batches(input().cardinality(), size_, drop_remainder_);
}

Dataset Dataset::batch(int64_t size, BatchOptions options) const {
  if (size < 1) invalid("batch(", size, "): a batch has at least 1 element");
  return Dataset(std::make_shared<BatchSource>(source_, size, options.drop_remainder));
}

Dataset Dataset::padded_batch(int64_t size, const PaddedBatchOptions& options) const {
  if (size < 1) invalid("padded_batch(", size, "): a batch has at least 1 element");
  return Dataset(
      std::make_shared<BatchSource>(source_, size, options.drop_remainder, Padding(options)));
}

}  // namespace cohort::data
