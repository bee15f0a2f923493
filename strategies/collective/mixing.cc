#include "strategies/collective/mixing.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "core/base/error.h"
#include "core/base/fnv1a.h"
#include "core/base/random.h"
#include "core/base/threads.h"
#include "core/collective/split.h"
#include "strategies/collective/all_reduce_calls.h"
#include "strategies/collective/tensor_header.h"

namespace cohort::collective {
namespace {

constexpr std::string_view kSumsToOne =
    "; every row and every column of a mixing matrix adds up to 1";

size_t at(int rank) { return static_cast<size_t>(rank); }

bool is_one(double sum) { return std::abs(sum - 1) <= kMixingTolerance; }

// --- Rows

void check_rank(int rank, int size) {
  if (size < 1 || rank < 0 || rank >= size) invalid("rank ", rank, " of ", size, " cannot be");
}

void check_weight(double weight, int of, int by) {
  if (!std::isfinite(weight) || weight < 0)
    invalid("rank ", by, " gives the values of rank ", of, " the weight ", weight,
            "; weights are finite and not negative");
}

void check_row(const MixingRow& row, int rank, int size) {
  check_weight(row.own_weight, rank, rank);
  std::set<int> ranks{rank};
  double sum = row.own_weight;
  for (const Neighbour& neighbour : row.neighbours) {
    if (neighbour.rank < 0 || neighbour.rank >= size)
      invalid("rank ", rank, " of ", size, " has rank ", neighbour.rank,
              " as a neighbour; there are ranks 0 to ", size - 1);
    if (!ranks.insert(neighbour.rank).second)
      invalid("rank ", rank, " has rank ", neighbour.rank,
              neighbour.rank == rank ? " as a neighbour, which is itself"
                                     : " as a neighbour more than once");
    check_weight(neighbour.weight, neighbour.rank, rank);
    sum += neighbour.weight;
  }
  if (!is_one(sum)) invalid("the weights that rank ", rank, " gives add up to ", sum, kSumsToOne);
}

void check_matrix(const std::vector<std::vector<double>>& matrix, int size) {
  if (matrix.size() != at(size))
    invalid("a mixing matrix has a row for each of the ", size, " ranks, got ", matrix.size());
  std::vector<double> columns(matrix.size());
  for (int r = 0; r < size; ++r) {
    const std::vector<double>& row = matrix[at(r)];
    if (row.size() != matrix.size())
      invalid("a mixing matrix has a column for each of the ", size, " ranks, but row ", r, " has ",
              row.size());
    double sum = 0;
    for (int s = 0; s < size; ++s) {
      check_weight(row[at(s)], s, r);
      sum += row[at(s)];
      columns[at(s)] += row[at(s)];
    }
    if (!is_one(sum)) invalid("row ", r, " of the matrix adds up to ", sum, kSumsToOne);
  }
  for (int s = 0; s < size; ++s)
    if (!is_one(columns[at(s)]))
      invalid("column ", s, " of the matrix adds up to ", columns[at(s)], kSumsToOne);
}

// --- Messages

// Messages to and from neighbours that are under way. Their memory outlives this.
class Messages {
 public:
  explicit Messages(Communicator& group) : group_(group) {}
  // After an error: nobody touches the memory any more when it returns.
  ~Messages() {
    if (under_way_.empty()) return;
    group_.abort(
        Error(Code::kAborted, str("rank ", group_.rank(), " has given up to mix its values")));
    for (const UnderWay& message : under_way_) {
      try {
        group_.wait(message.operation);
      } catch (const Error&) {  // that of the group, which is known
      }
    }
  }
  Messages(const Messages&) = delete;
  Messages& operator=(const Messages&) = delete;

  void send(const void* source, size_t bytes, int to) {
    const auto size = static_cast<int64_t>(bytes);
    under_way_.push_back({group_.start_send({source, size, to, kMixingTag}), std::nullopt});
  }
  void receive(void* target, size_t bytes, int from) {
    const auto size = static_cast<int64_t>(bytes);
    under_way_.push_back({group_.start_receive({target, size, from, kMixingTag}), size});
  }
  void wait() {
    while (!under_way_.empty()) {
      const UnderWay message = under_way_.back();
      under_way_.pop_back();
      try {
        const Received received = group_.wait(message.operation);
        if (message.expected && received.bytes != *message.expected)
          fail(Code::kDataLoss, "rank ", received.source, " has sent ", received.bytes,
               " bytes of ", *message.expected, " for mixing");
      } catch (const Error& error) {
        group_.abort(error);
        throw;
      }
    }
  }

 private:
  struct UnderWay {
    int64_t operation;
    std::optional<int64_t> expected;  // bytes, of a receive
  };
  Communicator& group_;
  std::vector<UnderWay> under_way_;
};

// What ranks tell each other first.
struct Word {
  int64_t round = 0, tensors = 0;
  double weight = 0;   // that the sender gives to the values of the receiver
  uint64_t specs = 0;  // a hash of the tensors' dtypes and shapes, for average()
};

// In one order of ranks, so that both say the same.
void check_words(const Word& a, int rank_a, const Word& b, int rank_b) {
  if (rank_a > rank_b) return check_words(b, rank_b, a, rank_a);
  if (a.round != b.round || a.tensors != b.tensors)
    invalid("ranks mix as many tensors in the same round, but rank ", rank_a, " mixes ", a.tensors,
            " tensors in round ", a.round, " and rank ", rank_b, " mixes ", b.tensors,
            " tensors in round ", b.round);
}

void check_specs(int64_t tensor, const TensorSpec& a, int rank_a, const TensorSpec& b, int rank_b) {
  if (rank_a > rank_b) return check_specs(tensor, b, rank_b, a, rank_a);
  if (a != b)
    invalid("tensors that are mixed have equal dtypes and shapes, but tensor ", tensor, " is ", a,
            " on rank ", rank_a, " and ", b, " on rank ", rank_b);
}

void check_tensors(std::span<const Tensor> tensors, int rank) {
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (!tensors[i].defined())
      invalid("rank ", rank, " gave tensor ", i, " to mix, which is not defined");
    if (!is_floating(tensors[i].dtype()))
      invalid("rank ", rank, " gave tensor ", i, " to mix, which is ", tensors[i].spec(),
              "; weighted means are of float32, float64, bfloat16 and float16");
  }
}

std::vector<TensorHeader> headers_of(std::span<const Tensor> tensors) {
  std::vector<TensorHeader> headers;
  for (const Tensor& tensor : tensors) headers.push_back(header_of(tensor));
  return headers;
}

uint64_t hash_of(const std::vector<TensorHeader>& headers) {
  return fnv1a(
      {reinterpret_cast<const char*>(headers.data()), headers.size() * sizeof(TensorHeader)});
}

// Every error of `work` ends the group.
template <typename Work>
void end_on_error(Communicator& group, const Work& work) {
  try {
    work();
  } catch (const Error& error) {
    group.abort(error);
    throw;
  }
}

// --- Mixing

// The neighbours' words, in the order of the row.
std::vector<Word> exchange_words(Communicator& group, const MixingRow& row, const Word& own) {
  const size_t count = row.neighbours.size();
  std::vector<Word> said(count, own), heard(count);
  Messages messages(group);
  for (size_t n = 0; n < count; ++n) {
    said[n].weight = row.neighbours[n].weight;
    messages.receive(&heard[n], sizeof(Word), row.neighbours[n].rank);
    messages.send(&said[n], sizeof(Word), row.neighbours[n].rank);
  }
  messages.wait();
  double column = row.own_weight;
  for (size_t n = 0; n < count; ++n) {
    check_words(own, group.rank(), heard[n], row.neighbours[n].rank);
    column += heard[n].weight;
  }
  if (!is_one(column))
    invalid("the weights that rank ", group.rank(), " and its neighbours give to its values add up",
            " to ", column, kSumsToOne);
  return heard;
}

// Whether neighbours have tensors like these.
void compare_specs(Communicator& group, std::span<const Tensor> tensors, const MixingRow& row) {
  const std::vector<TensorHeader> own = headers_of(tensors);
  std::vector<std::vector<TensorHeader>> heard(row.neighbours.size(), own);
  const size_t bytes = own.size() * sizeof(TensorHeader);
  Messages messages(group);
  for (size_t n = 0; n < heard.size(); ++n) {
    messages.receive(heard[n].data(), bytes, row.neighbours[n].rank);
    messages.send(own.data(), bytes, row.neighbours[n].rank);
  }
  messages.wait();
  for (size_t n = 0; n < heard.size(); ++n)
    for (size_t i = 0; i < own.size(); ++i)
      check_specs(static_cast<int64_t>(i), tensors[i].spec(), group.rank(),
                  spec_of(heard[n][i], row.neighbours[n].rank), row.neighbours[n].rank);
}

// Of a neighbour, or of this rank.
struct Part {
  std::vector<Tensor> tensors;
  double weight;
};

// This rank's part and those of the neighbours that have weight here.
std::vector<Part> exchange_tensors(Communicator& group, std::span<const Tensor> tensors,
                                   const MixingRow& row, const std::vector<Word>& words) {
  std::vector<Part> parts;
  if (row.own_weight > 0) parts.push_back({{tensors.begin(), tensors.end()}, row.own_weight});
  Messages messages(group);
  for (size_t n = 0; n < words.size(); ++n) {
    const Neighbour& neighbour = row.neighbours[n];
    if (neighbour.weight > 0) {
      parts.push_back({{}, neighbour.weight});
      Part& part = parts.back();
      for (const Tensor& tensor : tensors) {
        part.tensors.emplace_back(tensor.dtype(), tensor.shape());
        messages.receive(part.tensors.back().raw(), tensor.bytes(), neighbour.rank);
      }
    }
    if (words[n].weight > 0)
      for (const Tensor& tensor : tensors)
        messages.send(tensor.raw(), tensor.bytes(), neighbour.rank);
  }
  messages.wait();
  return parts;
}

// The weighted mean of elements [begin, end), into `target`, which may be one of the parts.
template <typename T>
void combine(std::span<const std::pair<const T*, double>> parts, T* target, int64_t begin,
             int64_t end) {
  constexpr int64_t kBlock = 512;
  std::array<double, kBlock> sums;
  for (; begin < end; begin += kBlock) {
    const auto count = static_cast<size_t>(std::min(kBlock, end - begin));
    sums.fill(0);
    for (const auto& [values, weight] : parts)
      for (size_t i = 0; i < count; ++i) sums[i] += weight * static_cast<double>(values[begin + i]);
    for (size_t i = 0; i < count; ++i) target[begin + i] = static_cast<T>(sums[i]);
  }
}

void combine(const std::vector<Part>& parts, size_t index, Tensor& target) {
  constexpr int64_t kGrain = 1 << 14;
  dispatch(FloatTypes{}, target.dtype(), "mixing", [&]<typename T>() {
    std::vector<std::pair<const T*, double>> sources;
    for (const Part& part : parts)
      sources.emplace_back(part.tensors[index].template data<T>(), part.weight);
    T* const result = target.data<T>();
    parallel_for(target.num_elements(), kGrain,
                 [&](int64_t begin, int64_t end) { combine<T>(sources, result, begin, end); });
  });
}

// --- Averages

// Throws what the first difference is between ranks with as many tensors.
void name_difference(Communicator& group, const std::vector<TensorHeader>& own) {
  const size_t count = own.size(), size = at(group.size());
  std::vector<TensorHeader> all(count * size);
  const auto bytes = static_cast<int64_t>(count * sizeof(TensorHeader));
  group.all_gather(own.data(), all.data(), std::vector<int64_t>(size, bytes));
  for (int r = 1; r < group.size(); ++r)
    for (size_t i = 0; i < count; ++i)
      check_specs(static_cast<int64_t>(i), spec_of(all[i], 0), 0,
                  spec_of(all[at(r) * count + i], r), r);
}

}  // namespace

MixingRow ring_row(int rank, int size, double neighbour_weight) {
  check_rank(rank, size);
  if (!(neighbour_weight > 0 && neighbour_weight <= 0.5))
    invalid("the weight of a neighbour in a ring is more than 0 and at most 1/2, got ",
            neighbour_weight);
  if (size == 1) return {};
  const int next = (rank + 1) % size, previous = (rank + size - 1) % size;
  if (size == 2) return {1 - neighbour_weight, {{next, neighbour_weight}}};
  return {1 - 2 * neighbour_weight, {{previous, neighbour_weight}, {next, neighbour_weight}}};
}

MixingRow random_pair_row(int rank, int size, uint64_t seed, uint64_t round) {
  check_rank(rank, size);
  std::vector<int> order(at(size));
  std::iota(order.begin(), order.end(), 0);
  RandomStream random(seed, round);
  for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random.below(i)]);
  const auto place =
      static_cast<size_t>(std::find(order.begin(), order.end(), rank) - order.begin());
  const size_t partner = place ^ 1;
  return partner < order.size() ? MixingRow{0.5, {{order[partner], 0.5}}} : MixingRow{};
}

MixingRow matrix_row(const std::vector<std::vector<double>>& matrix, int rank, int size) {
  check_rank(rank, size);
  check_matrix(matrix, size);
  MixingRow row{matrix[at(rank)][at(rank)]};
  for (int other = 0; other < size; ++other)
    if (other != rank && (matrix[at(rank)][at(other)] > 0 || matrix[at(other)][at(rank)] > 0))
      row.neighbours.push_back({other, matrix[at(rank)][at(other)]});
  return row;
}

void mix(Communicator& group, std::span<Tensor> tensors, const MixingRow& row, int64_t round) {
  end_on_error(group, [&] {
    check_row(row, group.rank(), group.size());
    check_tensors(tensors, group.rank());
    if (row.neighbours.empty()) return;
    const auto words = exchange_words(
        group, row, {.round = round, .tensors = static_cast<int64_t>(tensors.size())});
    if (tensors.empty()) return;
    compare_specs(group, tensors, row);
    const auto parts = exchange_tensors(group, tensors, row, words);
    for (size_t i = 0; i < tensors.size(); ++i) combine(parts, i, tensors[i]);
  });
}

void average(Communicator& group, std::span<Tensor> tensors, int64_t round) {
  end_on_error(group, [&] {
    check_tensors(tensors, group.rank());
    const std::vector<TensorHeader> headers = headers_of(tensors);
    const Word own{
        .round = round, .tensors = static_cast<int64_t>(tensors.size()), .specs = hash_of(headers)};
    const std::vector<Word> words = tell_all(group, "average", own);
    for (int r = 1; r < group.size(); ++r) check_words(words[0], 0, words[at(r)], r);
    if (std::ranges::any_of(words, [&](const Word& word) { return word.specs != words[0].specs; }))
      name_difference(group, headers);
    const AllReduceCalls means(tensors, tensors, ReduceOp::kMean);
    for (const AllReduceCall& call : means.calls()) group.run(call);
  });
}

}  // namespace cohort::collective
