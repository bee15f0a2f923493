#pragma once

#include "core/graph/graph.h"

// Neural-network ops. Images are NHWC: [batch, height, width, channels]; filters HWIO:
// [height, width, input channels / groups, output channels]. All are differentiable; max_pool2d,
// batch_norm and scaled_dot_product_attention once, their gradients no more.
// Shapes, dtypes and options that do not fit are kInvalidArgument at once.
namespace cohort::ops {

// Zero rows around an image: kSame pads so that the output is ceil(input / stride) (the odd row
// goes to the end, as in TensorFlow), kValid not at all.
struct Padding {
  enum class Kind { kValid, kSame, kExplicit };
  Kind kind = Kind::kValid;
  int64_t top = 0, bottom = 0, left = 0, right = 0;  // for kExplicit

  static Padding valid() { return {}; }
  static Padding same() { return {Kind::kSame}; }
  // So many rows above and as many below, so many columns on the left and as many on the right.
  static Padding explicit_padding(int64_t vertical, int64_t horizontal) {
    return {Kind::kExplicit, vertical, vertical, horizontal, horizontal};
  }
};

struct Conv2DOptions {  // pairs are of height and width
  std::pair<int64_t, int64_t> strides = {1, 1};
  std::pair<int64_t, int64_t> dilations = {1, 1};
  Padding padding = {};
  int64_t groups = 1;
};
// [n, h, w, ci] to [n, oh, ow, co] by a filter [kh, kw, ci / groups, co].
Value conv2d(const Value& x, const Value& filter, const Conv2DOptions& options = {});
// The transpose of conv2d (its gradient with respect to x): maps [n, oh, ow, co] to [n, h, w, ci],
// where `output_size` is {h, w} of the image whose conv2d gives {oh, ow}.
Value conv2d_transpose(const Value& y, const Value& filter, std::pair<int64_t, int64_t> output_size,
                       const Conv2DOptions& options = {});

struct Pool2DOptions {
  std::pair<int64_t, int64_t> size = {2, 2};
  std::pair<int64_t, int64_t> strides = {0, 0};  // 0: the same as size
  Padding padding = {};                          // narrower than a window
};
// The largest element, or the mean, of each window: [n, h, w, c] to [n, oh, ow, c]. Padding is
// never the largest, and does not count in the mean. The first of equal elements gets the gradient.
Value max_pool2d(const Value& x, const Pool2DOptions& options = {});
Value avg_pool2d(const Value& x, const Pool2DOptions& options = {});

// Batch normalisation over all axes but the last, with the batch's own statistics.
struct BatchNorm {
  Value y;
  Value mean;      // [channels]
  Value variance;  // [channels], biased: the mean of squared deviations
};
BatchNorm batch_norm(const Value& x, const Value& gamma, const Value& beta, double epsilon);
// With given statistics.
Value batch_norm_inference(const Value& x, const Value& gamma, const Value& beta, const Value& mean,
                           const Value& variance, double epsilon);
// Over the last axis.
Value layer_norm(const Value& x, const Value& gamma, const Value& beta, double epsilon);
Value rms_norm(const Value& x, const Value& gamma, double epsilon);

Value softmax(const Value& x);      // over the last axis
Value log_softmax(const Value& x);  // over the last axis
// The same over any axis.
Value softmax(const Value& x, int64_t axis);
Value log_softmax(const Value& x, int64_t axis);

// -log softmax(logits)[label] for each row: logits [.., classes], of one class at least, labels
// integer [..] -> [..]. A label out of range is kOutOfRange at run time.
Value sparse_softmax_cross_entropy(const Value& logits, const Value& labels);
// -sum(targets * log softmax(logits)) over the last axis; targets sum to 1. The gradient flows to
// logits only.
Value softmax_cross_entropy(const Value& logits, const Value& targets);
// Elementwise, stable: max(x,0) - x*t + log(1 + exp(-|x|)).
Value sigmoid_cross_entropy(const Value& logits, const Value& targets);

struct AttentionOptions {
  bool causal = false;  // query i sees keys up to i + (keys - queries)
  double scale = 0;     // 0: 1 / sqrt(head size)
  // bool, of a shape that broadcasts to [batch, heads, queries, keys]: true where a query sees a
  // key, of those that `causal` lets it see. One that sees none gets zeros.
  Value mask = {};
};
// softmax(scale * q k^T) v for each batch and head, q [batch, queries, heads, size], k and v
// [batch, keys, heads, size] -> [batch, queries, heads, size]. Computed block by block; the score
// matrix is never held whole (FlashAttention, Dao et al. 2022) unless there is a mask. With one it
// is differentiable any number of times.
Value scaled_dot_product_attention(const Value& q, const Value& k, const Value& v,
                                   const AttentionOptions& options = {});

}  // namespace cohort::ops
