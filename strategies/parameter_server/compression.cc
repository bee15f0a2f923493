#include "strategies/parameter_server/compression.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/base/crc32c.h"
#include "core/base/error.h"

namespace cohort {
namespace {

// What gradients of T are added up in, and scales travel in.
template <typename T>
using Wide = std::conditional_t<std::is_same_v<T, double>, double, float>;

template <typename T>
constexpr auto kLargest = static_cast<Wide<T>>(largest_finite(dtype_of<T>));

// As an element of T, and never beyond its range.
template <typename T>
T rounded(Wide<T> value) {
  if constexpr (std::is_same_v<T, Wide<T>>) return value;
  return T(std::clamp(value, -kLargest<T>, kLargest<T>));
}

constexpr int kMaxInt8 = 127;
constexpr uint64_t kMaxPlaces = UINT32_MAX;
// What kRandomK sends of a task is the same in each run.
constexpr uint64_t kSeed = 1;

// One element of a top-k or random-k message: its place, then its value.
using Place = uint32_t;
template <typename W>
constexpr size_t kEntryBytes = sizeof(Place) + sizeof(W);

std::shared_ptr<Buffer> buffer_of(size_t bytes) {
  auto buffer = allocate_host_buffer(bytes);
  buffer->bytes = bytes;
  return buffer;
}

// A buffer that begins with `scale`, with zeros behind it.
template <typename W>
std::shared_ptr<Buffer> buffer_with(W scale, size_t bytes) {
  auto buffer = buffer_of(sizeof scale + bytes);
  std::memcpy(buffer->data, &scale, sizeof scale);
  std::memset(static_cast<char*>(buffer->data) + sizeof scale, 0, bytes);
  return buffer;
}

// Each of these writes what travels, and what it becomes there over `values`.
template <typename Half, typename W>
std::shared_ptr<Buffer> to_half(std::span<W> values) {
  auto buffer = buffer_of(values.size() * sizeof(Half));
  auto* out = static_cast<Half*>(buffer->data);
  constexpr W kLimit = kLargest<Half>;
  for (size_t i = 0; i < values.size(); ++i) {
    out[i] = Half(static_cast<float>(std::clamp(values[i], -kLimit, kLimit)));
    values[i] = static_cast<float>(out[i]);
  }
  return buffer;
}

template <typename W>
std::shared_ptr<Buffer> to_int8(std::span<W> values) {
  constexpr W kSteps = kMaxInt8;
  W largest = 0;
  for (const W value : values) largest = std::max(largest, std::abs(value));
  W scale = largest / kSteps;
  // It may have been rounded up.
  if (!std::isfinite(scale * kSteps)) scale = std::nextafter(scale, W(0));
  auto buffer = buffer_with(scale, values.size());
  auto* out = static_cast<int8_t*>(buffer->data) + sizeof scale;
  for (size_t i = 0; i < values.size(); ++i) {
    const W steps = scale > 0 ? std::round(values[i] / scale) : 0;
    out[i] = static_cast<int8_t>(std::clamp(steps, -kSteps, kSteps));
    values[i] = static_cast<W>(out[i]) * scale;
  }
  return buffer;
}

template <typename W>
std::shared_ptr<Buffer> to_one_bit(std::span<W> values) {
  // Not the sum divided at the end, which may be more than a double holds.
  double mean = 0;
  for (const W value : values) mean += std::abs(value) / static_cast<double>(values.size());
  const auto scale = static_cast<W>(std::min<double>(mean, kLargest<W>));
  auto buffer = buffer_with(scale, (values.size() + 7) / 8);
  auto* out = static_cast<uint8_t*>(buffer->data) + sizeof scale;
  for (size_t i = 0; i < values.size(); ++i) {
    const bool positive = values[i] >= 0;
    if (positive) out[i / 8] |= static_cast<uint8_t>(1 << i % 8);
    values[i] = positive ? scale : -scale;
  }
  return buffer;
}

// Four elements in a byte: 1 is plus the threshold, 2 is minus.
template <typename W>
std::shared_ptr<Buffer> to_two_bits(std::span<W> values, W threshold) {
  auto buffer = buffer_with(threshold, (values.size() + 3) / 4);
  auto* out = static_cast<uint8_t*>(buffer->data) + sizeof threshold;
  for (size_t i = 0; i < values.size(); ++i) {
    const int code = values[i] >= threshold ? 1 : values[i] <= -threshold ? 2 : 0;
    out[i / 4] |= static_cast<uint8_t>(code << i % 4 * 2);
    values[i] = code == 1 ? threshold : code == 2 ? -threshold : 0;
  }
  return buffer;
}

// How many of so many elements are sent. What rounding has added to a whole number is no element.
size_t number_sent(double share, size_t elements) {
  if (elements > kMaxPlaces)
    invalid("top-k and random-k take gradients of ", kMaxPlaces, " elements at most, got ",
            elements);
  constexpr double kBelow = 1 - 2 * std::numeric_limits<double>::epsilon();
  const auto wanted =
      static_cast<size_t>(std::ceil(share * static_cast<double>(elements) * kBelow));
  return std::min(std::max<size_t>(wanted, 1), elements);
}

// The elements at these places, which are ascending. Sets all other values to 0.
template <typename W>
std::shared_ptr<Buffer> entries_of(std::span<W> values, std::span<const Place> places) {
  auto buffer = buffer_of(places.size() * kEntryBytes<W>);
  auto* out = static_cast<char*>(buffer->data);
  auto next = places.begin();
  for (size_t i = 0; i < values.size(); ++i) {
    if (next == places.end() || *next != i) {
      values[i] = 0;
      continue;
    }
    std::memcpy(out, &*next, sizeof(Place));
    std::memcpy(out + sizeof(Place), &values[i], sizeof(W));
    out += kEntryBytes<W>;
    ++next;
  }
  return buffer;
}

template <typename W>
std::shared_ptr<Buffer> to_top_k(std::span<W> values, double share) {
  const size_t count = number_sent(share, values.size());
  std::vector<Place> places(values.size());
  std::iota(places.begin(), places.end(), Place{0});
  // Of equal magnitudes the first ones, so that everybody chooses alike.
  const auto before = [&](Place a, Place b) {
    const W x = std::abs(values[a]), y = std::abs(values[b]);
    return x != y ? x > y : a < b;
  };
  std::nth_element(places.begin(), places.begin() + static_cast<ptrdiff_t>(count), places.end(),
                   before);
  places.resize(count);
  std::ranges::sort(places);
  return entries_of<W>(values, places);
}

// Knuth's selection sampling (The Art of Computer Programming 3.4.2, algorithm S).
template <typename W>
std::shared_ptr<Buffer> to_random_k(std::span<W> values, double share, RandomStream& random) {
  const size_t count = number_sent(share, values.size());
  std::vector<Place> places;
  places.reserve(count);
  for (size_t i = 0; places.size() < count; ++i)
    if (random.below(values.size() - i) < count - places.size())
      places.push_back(static_cast<Place>(i));
  return entries_of<W>(values, places);
}

template <typename W>
std::shared_ptr<Buffer> encode(const CompressionOptions& options, std::span<W> values,
                               RandomStream& random) {
  switch (options.kind) {
    case Compression::kBFloat16:
      return to_half<bfloat16>(values);
    case Compression::kFloat16:
      return to_half<float16>(values);
    case Compression::kInt8:
      return to_int8(values);
    case Compression::kOneBit:
      return to_one_bit(values);
    case Compression::kTopK:
      return to_top_k(values, options.top_k);
    case Compression::kRandomK:
      return to_random_k(values, options.top_k, random);
    case Compression::kTwoBit:
      return to_two_bits<W>(values, options.threshold);
    case Compression::kNone:
      break;
  }
  fail(Code::kInternal, "what is not compressed has no encoding");
}

// Of a gradient of T, of which `residual` is kept: in new memory, for what was kept before it may
// be put back.
template <typename T>
std::shared_ptr<Buffer> compress_as(const CompressionOptions& options, const Tensor& gradient,
                                    Tensor& residual, RandomStream& random) {
  using W = Wide<T>;
  if (residual.dtype() != dtype_of<W> || !residual.defined() ||
      residual.shape() != gradient.shape())
    residual = Tensor::zeros(dtype_of<W>, gradient.shape());
  const auto count = static_cast<size_t>(gradient.num_elements());
  const T* in = gradient.data<T>();
  const W* kept = residual.data<W>();
  Tensor sum(dtype_of<W>, gradient.shape());
  W* left = sum.data<W>();
  for (size_t i = 0; i < count; ++i)
    left[i] = std::clamp(kept[i] + static_cast<W>(in[i]), -kLargest<W>, kLargest<W>);
  std::vector<W> values(left, left + count);
  auto buffer = encode<W>(options, values, random);
  for (size_t i = 0; i < count; ++i) left[i] -= static_cast<W>(rounded<T>(values[i]));
  residual = std::move(sum);
  return buffer;
}

}  // namespace

GradientCompressor::GradientCompressor(const CompressionOptions& options, std::string_view task)
    : options_(options), random_(kSeed, crc32c(task)) {
  if (const int kind = static_cast<int>(options.kind); kind < 0 || kind >= kNumCompressions)
    invalid("compression has the kind ", kind, "; allowed: 0 to ", kNumCompressions - 1);
  if (!(options.top_k > 0 && options.top_k <= 1))
    invalid("top_k must be in (0, 1], got ", options.top_k);
  if (!(options.threshold > 0) || !std::isfinite(options.threshold))
    invalid("threshold must be positive, got ", options.threshold);
}

void GradientCompressor::require_finite(const std::string& shard, const Tensor& gradient) {
  dispatch(FloatTypes{}, gradient.dtype(), "a compressed gradient", [&]<typename T>() {
    for (const T value : gradient.values<T>())
      if (!std::isfinite(static_cast<Wide<T>>(value)))
        fail(Code::kOutOfRange, "the gradient of shard \"", shard, "\" has an element ",
             static_cast<Wide<T>>(value), ", and what is not finite cannot be compressed");
  });
}

std::shared_ptr<Buffer> GradientCompressor::compress(const std::string& shard,
                                                     const Tensor& gradient) {
  std::shared_ptr<Buffer> buffer;
  dispatch(FloatTypes{}, gradient.dtype(), "a compressed gradient", [&]<typename T>() {
    buffer = compress_as<T>(options_, gradient, residuals_[shard], random_);
  });
  return buffer;
}

Tensor GradientCompressor::residual(const std::string& shard) const {
  const auto found = residuals_.find(shard);
  return found == residuals_.end() ? Tensor() : found->second;
}

void GradientCompressor::put_back(const std::string& shard, Tensor residual) {
  residuals_[shard] = std::move(residual);
}

namespace parameter_server {
namespace {

template <typename W>
W number_at(const char* data) {
  W number = 0;
  std::memcpy(&number, data, sizeof number);
  return number;
}

// Writes elements as the gradient's dtype.
template <typename T, typename F>
void fill(Tensor& gradient, const F& value_of) {
  T* out = gradient.data<T>();
  for (int64_t i = 0; i < gradient.num_elements(); ++i) out[i] = rounded<T>(value_of(i));
}

template <typename T, typename Half>
void fill_from(const char* data, Tensor& gradient) {
  const auto* in = reinterpret_cast<const Half*>(data);
  fill<T>(gradient, [in](int64_t i) { return static_cast<float>(in[i]); });
}

template <typename T>
void place_entries(const char* data, size_t bytes, Tensor& gradient) {
  using W = Wide<T>;
  const auto count = static_cast<uint64_t>(gradient.num_elements());
  T* out = gradient.data<T>();
  std::fill_n(out, count, T(0));
  for (size_t at = 0; at + kEntryBytes<W> <= bytes; at += kEntryBytes<W>) {
    const auto place = number_at<Place>(data + at);
    if (place >= count) invalid("a compressed gradient has element ", place, " of ", count);
    out[place] = rounded<T>(number_at<W>(data + at + sizeof place));
  }
}

template <typename T>
void decompress_as(Compression kind, const char* data, size_t bytes, Tensor& gradient) {
  using W = Wide<T>;
  const auto* after = reinterpret_cast<const uint8_t*>(data) + sizeof(W);  // the scale
  switch (kind) {
    case Compression::kBFloat16:
      return fill_from<T, bfloat16>(data, gradient);
    case Compression::kFloat16:
      return fill_from<T, float16>(data, gradient);
    case Compression::kInt8:
      return fill<T>(gradient, [after, scale = number_at<W>(data)](int64_t i) {
        return static_cast<W>(static_cast<int8_t>(after[i])) * scale;
      });
    case Compression::kOneBit:
      return fill<T>(gradient, [after, scale = number_at<W>(data)](int64_t i) {
        return after[i / 8] >> i % 8 & 1 ? scale : -scale;
      });
    case Compression::kTwoBit:
      return fill<T>(gradient, [after, scale = number_at<W>(data)](int64_t i) {
        const int code = after[i / 4] >> i % 4 * 2 & 3;
        return code == 1 ? scale : code == 2 ? -scale : W(0);
      });
    case Compression::kTopK:
    case Compression::kRandomK:
      return place_entries<T>(data, bytes, gradient);
    default:
      COHORT_CHECK(false);
  }
}

}  // namespace

void check_compressed(Compression kind, const TensorSpec& gradient, uint64_t bytes) {
  const auto elements = static_cast<uint64_t>(gradient.shape.num_elements());
  const uint64_t wide = gradient.dtype == DType::kFloat64 ? sizeof(double) : sizeof(float);
  uint64_t wanted = 0;
  switch (kind) {
    case Compression::kBFloat16:
    case Compression::kFloat16:
      wanted = 2 * elements;
      break;
    case Compression::kInt8:
      wanted = wide + elements;
      break;
    case Compression::kOneBit:
      wanted = wide + (elements + 7) / 8;
      break;
    case Compression::kTwoBit:
      wanted = wide + (elements + 3) / 4;
      break;
    case Compression::kTopK:
    case Compression::kRandomK: {
      const uint64_t entry = sizeof(Place) + wide;
      if (bytes % entry == 0 && bytes / entry <= elements) return;
      invalid(bytes, " bytes are no ", entry, " for each of at most ", elements, " elements");
    }
    default:
      invalid(static_cast<int>(kind), " is no compression");
  }
  if (bytes != wanted)
    invalid("a compressed gradient of ", elements, " elements takes ", wanted, " bytes, got ",
            bytes);
}

void decompress(Compression kind, const char* data, size_t bytes, Tensor& gradient) {
  dispatch(FloatTypes{}, gradient.dtype(), "a compressed gradient",
           [&]<typename T>() { decompress_as<T>(kind, data, bytes, gradient); });
}

}  // namespace parameter_server
}  // namespace cohort
