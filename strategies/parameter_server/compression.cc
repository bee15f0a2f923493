#include "strategies/parameter_server/compression.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <span>
#include <vector>

#include "core/base/error.h"

namespace cohort {
namespace {

constexpr float kMaxInt8 = 127, kMaxFloat16 = 65504, kMaxBFloat16 = 0x1.FEp127f;

// One element of a top-k message.
struct Entry {
  uint32_t place;
  float value;
};
constexpr uint64_t kMaxTopKElements = UINT32_MAX;

std::shared_ptr<Buffer> buffer_of(size_t bytes) {
  auto buffer = allocate_host_buffer(bytes);
  buffer->bytes = bytes;
  return buffer;
}

// Each of these writes what travels, and what it becomes there over `values`.
template <typename Half>
std::shared_ptr<Buffer> to_half(std::span<float> values, float limit) {
  auto buffer = buffer_of(values.size() * sizeof(Half));
  auto* out = static_cast<Half*>(buffer->data);
  for (size_t i = 0; i < values.size(); ++i) {
    out[i] = Half(std::clamp(values[i], -limit, limit));
    values[i] = out[i];
  }
  return buffer;
}

std::shared_ptr<Buffer> to_int8(std::span<float> values) {
  auto buffer = buffer_of(sizeof(float) + values.size());
  float largest = 0;
  for (const float value : values) largest = std::max(largest, std::abs(value));
  const float scale = largest / kMaxInt8;
  std::memcpy(buffer->data, &scale, sizeof scale);
  auto* out = static_cast<int8_t*>(buffer->data) + sizeof(float);
  for (size_t i = 0; i < values.size(); ++i) {
    const float steps = scale > 0 ? std::round(values[i] / scale) : 0;
    out[i] = static_cast<int8_t>(std::clamp(steps, -kMaxInt8, kMaxInt8));
    values[i] = static_cast<float>(out[i]) * scale;
  }
  return buffer;
}

std::shared_ptr<Buffer> to_one_bit(std::span<float> values) {
  const size_t bits = (values.size() + 7) / 8;
  auto buffer = buffer_of(sizeof(float) + bits);
  double sum = 0;
  for (const float value : values) sum += std::abs(value);
  const auto scale =
      static_cast<float>(values.empty() ? 0 : sum / static_cast<double>(values.size()));
  std::memcpy(buffer->data, &scale, sizeof scale);
  auto* out = static_cast<uint8_t*>(buffer->data) + sizeof(float);
  std::memset(out, 0, bits);
  for (size_t i = 0; i < values.size(); ++i) {
    const bool positive = values[i] >= 0;
    if (positive) out[i / 8] |= static_cast<uint8_t>(1 << i % 8);
    values[i] = positive ? scale : -scale;
  }
  return buffer;
}

// Four elements in a byte: 1 is plus the threshold, 2 is minus.
std::shared_ptr<Buffer> to_two_bits(std::span<float> values, float threshold) {
  const size_t bytes = (values.size() + 3) / 4;
  auto buffer = buffer_of(sizeof(float) + bytes);
  std::memcpy(buffer->data, &threshold, sizeof threshold);
  auto* out = static_cast<uint8_t*>(buffer->data) + sizeof(float);
  std::memset(out, 0, bytes);
  for (size_t i = 0; i < values.size(); ++i) {
    const int code = values[i] >= threshold ? 1 : values[i] <= -threshold ? 2 : 0;
    out[i / 4] |= static_cast<uint8_t>(code << i % 4 * 2);
    values[i] = code == 1 ? threshold : code == 2 ? -threshold : 0;
  }
  return buffer;
}

std::shared_ptr<Buffer> to_top_k(std::span<float> values, double share) {
  if (values.size() > kMaxTopKElements)
    invalid("top-k takes gradients of ", kMaxTopKElements, " elements at most, got ",
            values.size());
  const auto wanted = static_cast<size_t>(std::ceil(share * static_cast<double>(values.size())));
  const size_t count = std::min(std::max<size_t>(wanted, 1), values.size());
  std::vector<uint32_t> places(values.size());
  std::iota(places.begin(), places.end(), 0u);
  // Of equal magnitudes the first ones, so that everybody chooses alike.
  const auto before = [&](uint32_t a, uint32_t b) {
    const float x = std::abs(values[a]), y = std::abs(values[b]);
    return x != y ? x > y : a < b;
  };
  std::nth_element(places.begin(), places.begin() + static_cast<ptrdiff_t>(count), places.end(),
                   before);
  places.resize(count);
  std::ranges::sort(places);
  auto buffer = buffer_of(count * sizeof(Entry));
  auto* out = static_cast<Entry*>(buffer->data);
  for (size_t i = 0; i < count; ++i) out[i] = {places[i], values[places[i]]};
  std::ranges::fill(values, 0.0f);
  for (size_t i = 0; i < count; ++i) values[out[i].place] = out[i].value;
  return buffer;
}

std::shared_ptr<Buffer> encode(const CompressionOptions& options, std::span<float> values) {
  switch (options.kind) {
    case Compression::kBFloat16:
      return to_half<bfloat16>(values, kMaxBFloat16);
    case Compression::kFloat16:
      return to_half<float16>(values, kMaxFloat16);
    case Compression::kInt8:
      return to_int8(values);
    case Compression::kOneBit:
      return to_one_bit(values);
    case Compression::kTopK:
      return to_top_k(values, options.top_k);
    case Compression::kTwoBit:
      return to_two_bits(values, options.threshold);
    case Compression::kNone:
      break;
  }
  COHORT_CHECK(false);
}

}  // namespace

GradientCompressor::GradientCompressor(const CompressionOptions& options) : options_(options) {
  if (!(options.top_k > 0 && options.top_k <= 1))
    invalid("top_k must be in (0, 1], got ", options.top_k);
  if (!(options.threshold > 0) || !std::isfinite(options.threshold))
    invalid("threshold must be positive, got ", options.threshold);
}

std::shared_ptr<Buffer> GradientCompressor::compress(const std::string& shard,
                                                     const Tensor& gradient) {
  const Tensor floats =
      gradient.dtype() == DType::kFloat32 ? gradient : gradient.cast(DType::kFloat32);
  const auto count = static_cast<size_t>(gradient.num_elements());
  Tensor& residual = residuals_[shard];
  if (!residual.defined() || residual.shape() != gradient.shape())
    residual = Tensor::zeros(DType::kFloat32, gradient.shape());
  std::vector<float> values(count);
  float* kept = residual.data<float>();
  for (size_t i = 0; i < count; ++i) {
    values[i] = kept[i] + floats.data<float>()[i];
    if (!std::isfinite(values[i]))
      fail(Code::kOutOfRange, "the gradient of shard \"", shard, "\" has an element ",
           floats.data<float>()[i], ", and what is not finite cannot be compressed");
  }
  std::ranges::copy(values, kept);
  auto buffer = encode(options_, values);
  for (size_t i = 0; i < count; ++i) kept[i] -= values[i];
  return buffer;
}

Tensor GradientCompressor::residual(const std::string& shard) const {
  const auto found = residuals_.find(shard);
  return found == residuals_.end() ? Tensor() : found->second.clone();
}

namespace parameter_server {
namespace {

// Writes elements as the gradient's dtype.
template <typename F>
void fill(Tensor& gradient, const F& value_of) {
  dispatch(FloatTypes{}, gradient.dtype(), "a compressed gradient", [&]<typename T>() {
    T* out = gradient.data<T>();
    for (int64_t i = 0; i < gradient.num_elements(); ++i) out[i] = T(value_of(i));
  });
}

void place_entries(const char* data, size_t bytes, Tensor& gradient) {
  const auto count = static_cast<uint64_t>(gradient.num_elements());
  std::vector<Entry> entries(bytes / sizeof(Entry));
  std::memcpy(entries.data(), data, entries.size() * sizeof(Entry));
  for (const Entry& entry : entries)
    if (entry.place >= count)
      invalid("a compressed gradient has element ", entry.place, " of ", count);
  fill(gradient, [](int64_t) { return 0.0f; });
  dispatch(FloatTypes{}, gradient.dtype(), "a compressed gradient", [&]<typename T>() {
    for (const Entry& entry : entries) gradient.data<T>()[entry.place] = T(entry.value);
  });
}

}  // namespace

void check_compressed(Compression kind, uint64_t elements, uint64_t bytes) {
  uint64_t wanted = 0;
  switch (kind) {
    case Compression::kBFloat16:
    case Compression::kFloat16:
      wanted = 2 * elements;
      break;
    case Compression::kInt8:
      wanted = sizeof(float) + elements;
      break;
    case Compression::kOneBit:
      wanted = sizeof(float) + (elements + 7) / 8;
      break;
    case Compression::kTwoBit:
      wanted = sizeof(float) + (elements + 3) / 4;
      break;
    case Compression::kTopK:
      if (bytes % sizeof(Entry) == 0 && bytes / sizeof(Entry) <= elements) return;
      invalid(bytes, " bytes are no ", sizeof(Entry), " for each of at most ", elements,
              " elements");
    default:
      invalid(static_cast<int>(kind), " is no compression");
  }
  if (bytes != wanted)
    invalid("a compressed gradient of ", elements, " elements takes ", wanted, " bytes, got ",
            bytes);
}

void decompress(Compression kind, const char* data, size_t bytes, Tensor& gradient) {
  if (kind == Compression::kTopK) return place_entries(data, bytes, gradient);
  float scale = 0;
  if (kind == Compression::kInt8 || kind == Compression::kOneBit || kind == Compression::kTwoBit)
    std::memcpy(&scale, data, sizeof scale);
  const auto* after = reinterpret_cast<const uint8_t*>(data) + sizeof scale;
  switch (kind) {
    case Compression::kBFloat16:
      return fill(gradient, [in = reinterpret_cast<const bfloat16*>(data)](int64_t i) -> float {
        return in[i];
      });
    case Compression::kFloat16:
      return fill(gradient, [in = reinterpret_cast<const float16*>(data)](int64_t i) -> float {
        return in[i];
      });
    case Compression::kInt8:
      return fill(gradient, [=](int64_t i) {
        return static_cast<float>(static_cast<int8_t>(after[i])) * scale;
      });
    case Compression::kOneBit:
      return fill(gradient, [=](int64_t i) { return after[i / 8] >> i % 8 & 1 ? scale : -scale; });
    case Compression::kTwoBit:
      return fill(gradient, [=](int64_t i) {
        const int code = after[i / 4] >> i % 4 * 2 & 3;
        return code == 1 ? scale : code == 2 ? -scale : 0.0f;
      });
    default:
      COHORT_CHECK(false);
  }
}

}  // namespace parameter_server
}  // namespace cohort
