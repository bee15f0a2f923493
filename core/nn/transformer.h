#pragma once

#include <optional>
#include <string>

#include "core/nn/layer.h"
#include "core/ops/embedding_ops.h"

// Embeddings and attention.
namespace cohort::nn {

struct EmbeddingOptions {
  initializers::Initializer embeddings_initializer = initializers::random_uniform();
  std::string name = {};
};
// Integers [..] in [0, vocabulary) -> [.., size]: rows of the weight embeddings [vocabulary, size].
// Its gradient is sparse: a batch touches the rows it looked up.
Layer Embedding(int64_t vocabulary, int64_t size, const EmbeddingOptions& options = {});

struct EmbeddingBagOptions {
  ops::Combiner combiner = ops::Combiner::kMean;
  std::optional<int64_t> default_id = {};  // what an empty list looks up; none: zeros
  initializers::Initializer embeddings_initializer = initializers::random_uniform();
  std::string name = {};
};
// Lists of integers [.., n], padded with -1, in [0, vocabulary) -> [.., size]: the rows of the
// weight embeddings [vocabulary, size] that a list names, combined into one by
// ops::safe_embedding_lookup_sparse. A second input, float32 [.., n], is the weights of the first.
Layer EmbeddingBag(int64_t vocabulary, int64_t size, const EmbeddingBagOptions& options = {});

// Adds a learned vector for each position: [batch, t, size] with t <= max_length. Weight:
// embeddings [max_length, size].
Layer PositionEmbedding(int64_t max_length, const EmbeddingOptions& options = {});

struct MultiHeadAttentionOptions {
  bool causal = false;  // a position sees itself and those before it; the last one sees all keys
  // Of the result, in training (attention weights are never held to be dropped).
  double dropout = 0;
  bool use_bias = true;
  initializers::Initializer kernel_initializer = initializers::glorot_uniform();
  initializers::Initializer bias_initializer = initializers::zeros();
  std::string name = {};
};
// Multi-head attention (Vaswani et al. 2017) with `heads` heads of `key_size`: [batch, t, d] -> the
// same. Inputs: x for self-attention; or query and value; or query, value and key, in Keras' order.
// After them there may be a mask, which is known by being bool: true where a query may look at a
// key, as [batch, keys] (ops::sequence_mask makes it of lengths), [batch, queries, keys], or what
// broadcasts to [batch, heads, queries, keys]. Where `causal` is on as well, it has to allow it
// too. A query that may look at no key attends to nothing, zeros. Sublayers query, key, value and
// attention_output are Dense layers: kernels [d, heads * key_size], and back.
Layer MultiHeadAttention(int64_t heads, int64_t key_size,
                         const MultiHeadAttentionOptions& options = {});

}  // namespace cohort::nn
