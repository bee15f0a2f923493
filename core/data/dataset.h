#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/data/element.h"

namespace cohort::data {

class Dataset;
class Source;

// What cardinality() returns when there is no count to return.
inline constexpr int64_t kInfinite = -1;
inline constexpr int64_t kUnknown = -2;

using MapFunction = std::function<Element(const Element&)>;
using FilterFunction = std::function<bool(const Element&)>;
using InterleaveFunction = std::function<Dataset(const Element&)>;
// Returns the next element, or nothing at the end.
using NextFunction = std::function<std::optional<Element>()>;

struct ShuffleOptions {
  // Without a seed, one is derived from global_seed() as it was when shuffle() was called, and from
  // how many other shuffles and sample_from() without seeds come before it: those below it, and of
  // a zip(), concatenate() or sample_from() those of the first dataset before those of the second;
  // below a cache(), those below it alone. What is above makes no difference: take(n) and skip(n)
  // of what is always in one order (reshuffle_each_iteration = false) have no element in common,
  // and zip(a, a.map(f)) keeps pairs together. The datasets that an interleave() opens have orders
  // of their own, by their numbers; those of another interleave() have the same ones. What is made
  // in the same way has the same order in every process. Shuffles with the same seed and buffer put
  // equally long inputs in the same order.
  std::optional<uint64_t> seed = {};
  bool reshuffle_each_iteration = true;  // another order in each epoch
};

struct BatchOptions {
  bool drop_remainder = false;  // leave out a last batch that has fewer rows
};

struct PaddedBatchOptions {
  // By the tensor's name, the shape that it is padded to, where -1 is the longest of the batch. A
  // scalar has the shape {}. Where shapes are given, tensors without one have to agree, as for
  // batch(); where none are, every tensor is padded to the longest of the batch along every axis.
  std::map<std::string, std::vector<int64_t>> shapes = {};
  std::map<std::string, double> values = {};  // by name, what is padded with; else 0, or false
  bool drop_remainder = false;                // as of batch()
};

struct WindowOptions {
  std::optional<int64_t> shift = {};  // elements between two windows' starts; else the size
  int64_t stride = 1;                 // elements between two neighbours in a window
  bool drop_remainder = false;        // leave out last windows that have fewer elements
};

struct MapOptions {
  // Threads that call the function; with 1, the thread that calls next() does.
  int num_parallel = 1;
  // Yield in the order of the input, not in that of completion. False is passed over where elements
  // are chosen or kept by their numbers: below shard(), what divides elements over input pipelines,
  // InputOptions::keep_order and cache(), and in what an interleave() opens below a shuffle() or
  // another interleave().
  bool deterministic = true;
};

struct InterleaveOptions {
  int64_t cycle_length = 1;  // inputs that are read in turn
  int64_t block_length = 1;  // elements taken from one before its turn ends
};

struct IterateOptions {
  // Which pass this is; shuffles depend on it. Without one, the passes begun on this dataset, its
  // copies and what a strategy has distributed of them are counted: 0, 1, 2, ...
  std::optional<uint64_t> epoch = {};
};

// One pass over a dataset. Movable; used by one thread at a time. Its threads, if the pipeline has
// any, start with the first next() and end with the iterator, at the latest once the user functions
// they are in return.
class Iterator {
 public:
  Iterator(Iterator&&) noexcept;
  Iterator& operator=(Iterator&&) noexcept;
  ~Iterator();

  // The next element, or nothing at the end. Throws what a reader or a user function threw, also
  // when that was on another thread; after an error only restore() and destruction are meaningful.
  std::optional<Element> next();
  uint64_t epoch() const;

  // Where the iterator stands, as compact JSON: counts, never elements, and a checksum.
  std::string save() const;
  // Continues, from then on, with exactly the elements (and the epoch) that followed a save() of
  // the same pipeline over the same data, in this process or another. User functions must depend on
  // their arguments alone. A shuffle reads its buffer anew, generator() and an unfilled cache()
  // replay what came before.
  // kFailedPrecondition when another pipeline saved the position, or the same one with other
  // arguments, another seed or another part of the data; functions, threads and, with one input
  // pipeline, the size of batches may be others. kDataLoss when the text is corrupt or the data has
  // changed. The iterator is then as it was. Where the iterator was begun without an epoch, the
  // next pass begun without one comes after the one that is continued.
  void restore(std::string_view position);

 private:
  friend class Dataset;
  Iterator(const std::shared_ptr<const Source>& source, const IterateOptions& options);
  struct State;
  std::unique_ptr<State> state_;
};

// What range-for and std::ranges use: an input iterator over one pass.
template <typename Pass, typename T>
class PassIterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = T;
  using difference_type = std::ptrdiff_t;
  using pointer = T*;
  using reference = T&;

  explicit PassIterator(Pass pass) : pass_(std::move(pass)), current_(pass_.next()) {}
  T& operator*() const { return *current_; }
  T* operator->() const { return &*current_; }
  PassIterator& operator++() {
    current_ = pass_.next();
    return *this;
  }
  void operator++(int) { ++*this; }
  bool operator==(std::default_sentinel_t) const { return !current_; }

 private:
  Pass pass_;
  mutable std::optional<T> current_;  // as what a pointer points to, not part of the iterator
};
using ElementIterator = PassIterator<Iterator, Element>;

// A sequence of elements, described rather than held: a chain of transformations over a source,
// with the semantics of tf.data. Each transformation returns a new dataset and leaves this one as
// it is.
//
//   auto train = data::images_from_idx(dir, "train").shuffle(10'000).batch(128).prefetch(2);
//   for (auto& batch : train) step(batch["image"], batch["label"]);
//
// A value type that is cheap to copy; immutable and thread-safe, if the user's functions are.
// Nothing is read before an iterator asks for it. Every order is reproducible: it depends on seeds,
// epoch and, of several input pipelines, on which of them reads (auto_shard.h). Arguments that make
// no sense (a batch of 0 rows) throw kInvalidArgument at once.
class Dataset {
 public:
  // kInvalidArgument for a null source.
  explicit Dataset(std::shared_ptr<const Source> source);

  // --- Transformations of elements

  // What `function` returns for each element. With num_parallel > 1, several threads call it at a
  // time. An Error that it throws, as one of filter()'s or take_while()'s function, says for which
  // element of this pass: "map(): element 3: ...".
  Dataset map(MapFunction function, MapOptions options = {}) const;
  // The elements for which `keep` returns true.
  Dataset filter(FilterFunction keep) const;
  // Stacks `size` elements along a new first axis. A tensor whose name, dtype or shape differs from
  // the batch's first is kInvalidArgument, naming element, tensor and both specs.
  Dataset batch(int64_t size, BatchOptions options = {}) const;
  // Stacks `size` elements, as batch() does, after padding their tensors behind their values to the
  // same shape. A tensor that is longer than its shape in the options, of another rank than the
  // batch's first, or not there is kInvalidArgument. With shapes that leave no length open, several
  // input pipelines divide the elements, as those of batch(); else the rows of a batch are as long
  // as one pipeline makes them, so that each reads whole batches and keeps its rows.
  Dataset padded_batch(int64_t size, const PaddedBatchOptions& options = {}) const;
  // The rows of each element, one by one: undoes batch(). An element whose tensors are not all of
  // as many rows is kInvalidArgument.
  Dataset unbatch() const;
  // Each `size` elements that follow one another, stacked as by batch(): what is
  // window(size, shift, stride).flat_map(batch(size)) in tf.data, whose windows are datasets.
  // Windows start at elements 0, shift, 2 shift, ..., as long as there are any.
  //
  //   series.window(25, {.shift = 1, .drop_remainder = true}).batch(32)   // [32, 25, ...]
  Dataset window(int64_t size, WindowOptions options = {}) const;

  // --- Transformations of order

  // Draws from a buffer that always holds the next `buffer_size` elements not yet drawn; uniform
  // when the buffer is as large as the dataset.
  Dataset shuffle(int64_t buffer_size, ShuffleOptions options = {}) const;
  // `count` passes over this dataset, endless when -1. Pass r of epoch e is epoch e * count + r of
  // the input, e * 2^32 + r when endless. A pass without elements is the last. Where workers share
  // out a dataset whose length is not known, it belongs before batch() (DistributedDataset).
  Dataset repeat(int64_t count = -1) const;
  // The first `count` elements, all when -1.
  Dataset take(int64_t count) const;
  // The elements before the first one for which `holds` returns false.
  Dataset take_while(FilterFunction holds) const;
  // All but the first `count` elements.
  Dataset skip(int64_t count) const;
  // Elements index, index + num, index + 2 num, ...
  Dataset shard(int64_t num, int64_t index) const;
  // The elements of this dataset, then those of `other`, which is opened when this one has ended.
  // Names and dtypes have to agree: kInvalidArgument when the first element of `other` is read.
  Dataset concatenate(const Dataset& other) const;
  // Datasets made from the elements of this one, `cycle_length` of them in turn; one at a time,
  // this is tf.data's flat_map.
  Dataset interleave(InterleaveFunction function, InterleaveOptions options = {}) const;

  // --- Where and when elements are made

  // Keeps the elements of the first complete pass in memory, for all later passes over this dataset
  // and its copies. Of one that is divided over workers, each keeps its share, for every time that
  // it is divided in the same way. The input is always read as epoch 0: what is random above a
  // cache() stays as it was.
  Dataset cache() const;
  // A background thread keeps up to `count` elements ready.
  Dataset prefetch(int64_t count) const;

  // --- Reading

  Iterator iterate(IterateOptions options = {}) const;
  // One pass, as iterate() without an epoch: for (auto& element : dataset) ...
  ElementIterator begin() const { return ElementIterator(iterate()); }
  std::default_sentinel_t end() const { return std::default_sentinel; }

  // The number of elements, kInfinite, or kUnknown when only reading would tell (filter, interleave
  // and unbatch of what ends, take_while, and sample_from that stops on an empty dataset).
  int64_t cardinality() const;
  // The n of the last batch(n) in the pipeline; nothing when there is none, when unbatch() undoes
  // it, or when whole batches have to be seen (by padded_batch() with open lengths, take_while(),
  // window()). map() is taken to keep the rows of a batch.
  std::optional<int64_t> batch_size() const;

  // What the dataset is made of; never null. For transformations.
  const std::shared_ptr<const Source>& source() const { return source_; }

 private:
  std::shared_ptr<const Source> source_;
};

// --- Sources

// The rows of `tensors`: element i has row i of each, without the first axis. The tensors are
// shared, not copied. kInvalidArgument when there is none, one is a scalar, or two differ in rows
// (names both).
Dataset from_tensor_slices(const Element& tensors);

// {"value": int64[]} from 0 to count - 1.
Dataset range(int64_t count);

struct GeneratorOptions {
  // What cardinality() is to say. Where it is not true, next() throws kInvalidArgument as soon as
  // that shows.
  int64_t cardinality = kUnknown;
};
// The elements of `start()`, which is called once for each pass that reads them. Where a pass is
// read ahead, another thread than the one that trains calls both functions, meanwhile: fit() and
// distributed datasets read so, these unless InputOptions::prefetch is 0, and what is behind
// prefetch() is.
Dataset generator(std::function<NextFunction()> start, GeneratorOptions options = {});

// The tensors of both in one element, until the shorter ends. A name that both have is
// kInvalidArgument when the first element is read.
Dataset zip(const Dataset& a, const Dataset& b);

struct SampleOptions {
  // As of ShuffleOptions. Draws depend on seed, weights and epoch.
  std::optional<uint64_t> seed = {};
  // End as soon as a dataset that has ended is drawn, rather than go on with the others: their
  // shares stay what the weights say.
  bool stop_on_empty = false;
};
// Draws the dataset that each next element comes from, with probabilities in proportion to
// `weights`, which are equal where none are given: sample_from_datasets of tf.data. A dataset of
// weight 0 is left out. Names and dtypes have to agree, as for concatenate().
Dataset sample_from(const std::vector<Dataset>& datasets, const std::vector<double>& weights = {},
                    SampleOptions options = {});

}  // namespace cohort::data
