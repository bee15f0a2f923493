#pragma once

#include <string>

#include "core/nn/layer.h"

// Embeddings and attention.
namespace cohort::nn {

struct EmbeddingOptions {
  initializers::Initializer embeddings_initializer = initializers::random_uniform();
  std::string name;
};
// Integers [..] in [0, vocabulary) -> [.., size]: rows of the weight embeddings [vocabulary, size].
// Its gradient is sparse: a batch touches the rows it looked up.
Layer Embedding(int64_t vocabulary, int64_t size, const EmbeddingOptions& options = {});

// Adds a learned vector for each position: [batch, t, size] with t <= max_length. Weight:
// embeddings [max_length, size].
Layer PositionEmbedding(int64_t max_length, const EmbeddingOptions& options = {});

struct MultiHeadAttentionOptions {
  bool causal = false;  // a position sees itself and those before it
  double dropout =
      0;  // of the result, in training (attention weights are never held to be dropped)
  bool use_bias = true;
  initializers::Initializer kernel_initializer = initializers::glorot_uniform();
  initializers::Initializer bias_initializer = initializers::zeros();
  std::string name;
};
// Multi-head attention (Vaswani et al. 2017) with `heads` heads of `key_size`: [batch, t, d] -> the
// same. Inputs: x for self-attention; or query and value; or query, value and key, in Keras' order.
// Sublayers query, key, value and attention_output are Dense layers: kernels [d, heads * key_size],
// and back.
Layer MultiHeadAttention(int64_t heads, int64_t key_size,
                         const MultiHeadAttentionOptions& options = {});

}  // namespace cohort::nn
