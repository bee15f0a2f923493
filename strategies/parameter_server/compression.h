#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "core/base/random.h"
#include "core/tensor/tensor.h"

namespace cohort {

// How a dense gradient travels. The numbers are part of the protocol.
enum class Compression : int {
  kNone = 0,
  kBFloat16 = 1,  // half of float32
  kFloat16 = 2,   // half; beyond 65504 the rest stays behind
  kInt8 = 3,      // a quarter: 127ths of the largest magnitude
  kOneBit = 4,    // a 32nd: signs, with the mean magnitude (Seide et al. 2014)
  kTopK = 5,      // the largest magnitudes alone
  kTwoBit = 6,    // a 16th: plus or minus a threshold, or nothing
  kRandomK = 7,   // some elements, which are as likely each time (Stich et al. 2018)
};
inline constexpr int kNumCompressions = 8;

struct CompressionOptions {
  Compression kind = Compression::kNone;
  double top_k = 0.01;    // the share of elements that kTopK and kRandomK send, one at least
  float threshold = 0.5;  // of kTwoBit: no element moves by more than this at a time
};

// Compresses the gradients of one worker, with error feedback: what a gradient loses is kept, and
// added to the next one for the same shard, so that all that was sent and what is kept together are
// all that was put in. What is kept, the scales, and what kTopK and kRandomK send are in float64
// for gradients in float64, and in float32 for all others. Not synchronised.
class GradientCompressor {
 public:
  // `task`: whose gradients. kRandomK draws by its name, so that workers do not all send the same
  // elements, and each sends the same ones in each run. kInvalidArgument for a kind that there is
  // not, a share of elements outside (0, 1], and a threshold that is not positive.
  explicit GradientCompressor(const CompressionOptions& options, std::string_view task = {});

  Compression kind() const { return options_.kind; }
  // kOutOfRange for a gradient that is not finite; kUnimplemented for one that is of no
  // floating-point dtype.
  static void require_finite(const std::string& shard, const Tensor& gradient);
  // The bytes to send for a gradient. REQUIRES: require_finite(), which is asked before for all
  // that go together: of those that are not sent nothing must be kept.
  std::shared_ptr<Buffer> compress(const std::string& shard, const Tensor& gradient);
  // What is kept for a shard; undefined where nothing was sent yet. Not to be written; it stays as
  // it is.
  Tensor residual(const std::string& shard) const;
  // Nothing of what has been compressed for the shard since residual() was this has been applied.
  void put_back(const std::string& shard, Tensor residual);

 private:
  CompressionOptions options_;
  RandomStream random_;
  std::map<std::string, Tensor> residuals_;
};

namespace parameter_server {

// kInvalidArgument unless such a gradient may come in so many bytes.
void check_compressed(Compression kind, const TensorSpec& gradient, uint64_t bytes);
// The inverse of GradientCompressor::compress. kInvalidArgument for places outside the gradient.
void decompress(Compression kind, const char* data, size_t bytes, Tensor& gradient);

}  // namespace parameter_server
}  // namespace cohort
