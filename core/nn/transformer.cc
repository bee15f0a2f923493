#include "core/nn/transformer.h"

#include "core/nn/basic_layers.h"
#include "core/nn/layer_inputs.h"
#include "core/ops/array_ops.h"
#include "core/ops/math_ops.h"
#include "core/ops/nn_ops.h"
#include "core/ops/random_ops.h"

namespace cohort::nn {
namespace {

class EmbeddingLayer final : public LayerBase {
 public:
  EmbeddingLayer(int64_t vocabulary, int64_t size, const EmbeddingOptions& options)
      : LayerBase("Embedding", options.name),
        table_{vocabulary, size},
        initializer_(options.embeddings_initializer) {}

 protected:
  void build(const std::vector<TensorSpec>& /*inputs*/) override {
    embeddings_ = &add_weight("embeddings", table_, {.initializer = initializer_});
  }
  Value call(const std::vector<Value>& inputs, const CallContext&) override {
    return ops::gather(embeddings_->read(), only_input(inputs));
  }

 private:
  Shape table_;
  initializers::Initializer initializer_;
  Weight* embeddings_ = nullptr;
};

class EmbeddingBagLayer final : public LayerBase {
 public:
  EmbeddingBagLayer(int64_t vocabulary, int64_t size, const EmbeddingBagOptions& options)
      : LayerBase("EmbeddingBag", options.name), table_{vocabulary, size}, options_(options) {}

 protected:
  void build(const std::vector<TensorSpec>& inputs) override {
    if (inputs.empty() || inputs.size() > 2)
      invalid("takes ids, or ids and weights; got ", inputs.size(), " inputs");
    embeddings_ =
        &add_weight("embeddings", table_, {.initializer = options_.embeddings_initializer});
  }
  Value call(const std::vector<Value>& inputs, const CallContext&) override {
    return ops::safe_embedding_lookup_sparse(
        embeddings_->read(), inputs[0], inputs.size() > 1 ? inputs[1] : Value(),
        {.combiner = options_.combiner, .default_id = options_.default_id});
  }

 private:
  Shape table_;
  EmbeddingBagOptions options_;
  Weight* embeddings_ = nullptr;
};

class PositionEmbeddingLayer final : public LayerBase {
 public:
  PositionEmbeddingLayer(int64_t max_length, const EmbeddingOptions& options)
      : LayerBase("PositionEmbedding", options.name),
        max_length_(max_length),
        initializer_(options.embeddings_initializer) {}

 protected:
  void build(const std::vector<TensorSpec>& inputs) override {
    const int64_t size = features_of(only_input(inputs), 2);
    embeddings_ = &add_weight("embeddings", {max_length_, size}, {.initializer = initializer_},
                              weight_dtype(inputs[0]));
  }
  Value call(const std::vector<Value>& inputs, const CallContext&) override {
    const Value& x = only_input(inputs);
    require_features(x.shape(), embeddings_->spec(), 1);
    const int64_t length = x.shape().dim(-2);
    if (length > max_length_) invalid("has ", max_length_, " positions, the input has ", length);
    return x + ops::slice(embeddings_->read(), {0, 0}, {length, -1});
  }

 private:
  int64_t max_length_;
  initializers::Initializer initializer_;
  Weight* embeddings_ = nullptr;
};

class MultiHeadAttentionLayer final : public LayerBase {
 public:
  MultiHeadAttentionLayer(int64_t heads, int64_t key_size, const MultiHeadAttentionOptions& options)
      : LayerBase("MultiHeadAttention", options.name),
        heads_(heads),
        key_size_(key_size),
        options_(options) {}

  std::vector<Layer> sublayers() const override {
    if (!output_) return {query_, key_, value_};
    return {query_, key_, value_, output_};
  }

 protected:
  void build(const std::vector<TensorSpec>& inputs) override {
    const size_t sequences = inputs.size() - (ends_with_mask(inputs) ? 1 : 0);
    if (sequences < 1 || sequences > 3)
      invalid("takes x, or query and value, or query, value and key, and a bool mask after them; ",
              "got ", inputs.size(), " inputs");
    output_ = projection(features_of(inputs[0], 3), "attention_output");
  }

  Value call(const std::vector<Value>& inputs, const CallContext& context) override {
    std::vector<Value> sequences = inputs;
    Value mask;
    if (ends_with_mask(inputs)) {
      mask = for_all_heads(inputs.back());
      sequences.pop_back();
    }
    for (const Value& x : sequences)
      if (x.shape().rank() != 3) invalid("needs inputs [batch, t, features]");
    const Value &value = sequences[sequences.size() > 1 ? 1 : 0],
                &key = sequences.size() > 2 ? sequences[2] : value;
    const Value attended = ops::scaled_dot_product_attention(
        by_head(query_(sequences[0])), by_head(key_(key)), by_head(value_(value)),
        {.causal = options_.causal, .mask = mask});
    const Value y = output_(ops::flatten_from(attended, 2));
    return context.training && options_.dropout > 0 ? ops::dropout(y, options_.dropout) : y;
  }

 private:
  static bool ends_with_mask(const std::vector<TensorSpec>& inputs) {
    return inputs.size() > 1 && inputs.back().dtype == DType::kBool;
  }
  static bool ends_with_mask(const std::vector<Value>& inputs) {
    return inputs.size() > 1 && inputs.back().dtype() == DType::kBool;
  }

  // A mask of keys, or of queries and keys, as one that broadcasts to [batch, heads, queries,
  // keys].
  static Value for_all_heads(const Value& mask) {
    const Shape& shape = mask.shape();
    if (shape.rank() < 2 || shape.rank() > 4)
      invalid(
          "needs a mask [batch, keys], [batch, queries, keys] or [batch, heads, queries, keys]");
    if (shape.rank() == 2) return ops::reshape(mask, {shape[0], 1, 1, shape[1]});
    return shape.rank() == 3 ? ops::expand_dims(mask, 1) : mask;
  }

  Layer projection(int64_t units, std::string name) const {
    return Dense(units, {.use_bias = options_.use_bias,
                         .kernel_initializer = options_.kernel_initializer,
                         .bias_initializer = options_.bias_initializer,
                         .name = std::move(name)});
  }

  // [batch, t, heads * size] -> [batch, t, heads, size]
  Value by_head(const Value& x) const {
    return ops::reshape(x, {x.shape()[0], x.shape()[1], heads_, key_size_});
  }

  int64_t heads_, key_size_;
  MultiHeadAttentionOptions options_;
  Layer query_ = projection(heads_ * key_size_, "query");
  Layer key_ = projection(heads_ * key_size_, "key");
  Layer value_ = projection(heads_ * key_size_, "value");
  Layer output_;  // its size is the query's, known when built
};

}  // namespace

Layer Embedding(int64_t vocabulary, int64_t size, const EmbeddingOptions& options) {
  check_positive("Embedding", "vocabulary", vocabulary);
  check_positive("Embedding", "size", size);
  return std::make_shared<EmbeddingLayer>(vocabulary, size, options);
}

Layer EmbeddingBag(int64_t vocabulary, int64_t size, const EmbeddingBagOptions& options) {
  check_positive("EmbeddingBag", "vocabulary", vocabulary);
  check_positive("EmbeddingBag", "size", size);
  return std::make_shared<EmbeddingBagLayer>(vocabulary, size, options);
}

Layer PositionEmbedding(int64_t max_length, const EmbeddingOptions& options) {
  check_positive("PositionEmbedding", "max_length", max_length);
  return std::make_shared<PositionEmbeddingLayer>(max_length, options);
}

Layer MultiHeadAttention(int64_t heads, int64_t key_size,
                         const MultiHeadAttentionOptions& options) {
  check_positive("MultiHeadAttention", "heads", heads);
  check_positive("MultiHeadAttention", "key_size", key_size);
  check_rate("MultiHeadAttention", options.dropout);
  return std::make_shared<MultiHeadAttentionLayer>(heads, key_size, options);
}

}  // namespace cohort::nn
