#include "tests/kernels/cpu/nn_testing.h"

namespace cohort {
namespace {

struct Case {
  int64_t batch, queries, keys, heads, size;
  bool causal;

  Shape q() const { return {batch, queries, heads, size}; }
  Shape k() const { return {batch, keys, heads, size}; }
  Attributes attributes() const { return {{"causal", causal}, {"scale", 0.4}}; }
  int64_t q_at(int64_t b, int64_t i, int64_t h) const {
    return ((b * queries + i) * heads + h) * size;
  }
  int64_t k_at(int64_t b, int64_t j, int64_t h) const {
    return ((b * keys + j) * heads + h) * size;
  }
};

// Below, at and above the sizes of blocks.
const Case kCases[] = {
    {1, 1, 1, 1, 1, false},    {2, 5, 7, 3, 4, false},     {2, 7, 7, 2, 16, true},
    {1, 3, 9, 2, 5, true},     {1, 64, 128, 1, 8, true},   {1, 130, 130, 2, 16, true},
    {1, 65, 300, 1, 8, false}, {1, 200, 270, 1, 32, true}, {0, 4, 4, 2, 8, false},
    {2, 0, 3, 2, 8, false},    {2, 3, 3, 0, 8, true},      {2, 3, 5, 2, 0, false},
    {1, 70, 70, 2, 136, true}, {1, 9, 128, 1, 256, false},
};

double dot(const double* a, const double* b, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += a[i] * b[i];
  return sum;
}

// Scores of query i, those of unseen keys -inf.
std::vector<double> scores(const Case& c, const Tensor& q, const Tensor& k, int64_t b, int64_t h,
                           int64_t i) {
  std::vector<double> s;
  for (int64_t j = 0; j < c.keys; ++j)
    s.push_back(c.causal && j > i + c.keys - c.queries
                    ? -INFINITY
                    : 0.4 * dot(q.data<double>() + c.q_at(b, i, h),
                                k.data<double>() + c.k_at(b, j, h), c.size));
  return s;
}

template <typename F>
void for_each_query(const Case& c, F visit) {
  for (int64_t b = 0; b < c.batch; ++b)
    for (int64_t h = 0; h < c.heads; ++h)
      for (int64_t i = 0; i < c.queries; ++i) visit(b, h, i);
}

Tensors attention(const Case& c, const Tensors& in) {
  Tensor out = Tensor::zeros(DType::kFloat64, c.q()),
         lse(DType::kFloat64, {c.batch, c.heads, c.queries});
  for_each_query(c, [&](int64_t b, int64_t h, int64_t i) {
    const auto s = scores(c, in[0], in[1], b, h, i);
    double sum = 0;
    for (double score : s) sum += std::exp(score);
    lse.data<double>()[(b * c.heads + h) * c.queries + i] = std::log(sum);
    for (int64_t j = 0; j < c.keys; ++j)
      for (int64_t d = 0; d < c.size; ++d)
        out.data<double>()[c.q_at(b, i, h) + d] +=
            std::exp(s[j]) / sum * in[2].data<double>()[c.k_at(b, j, h) + d];
  });
  return {out, lse};
}

void check_attention(const Case& c, const Tensors& qkv) {
  check_kernel("Attention", qkv, c.attributes(),
               [&](const Tensors& in, const Attributes&) { return attention(c, in); });
}

TEST(Attention, AveragesValuesByTheSoftmaxOfScores) {
  for (const Case& c : kCases)
    check_attention(c, {random_tensor(c.q(), 1, -2, 2), random_tensor(c.k(), 2, -2, 2),
                        random_tensor(c.k(), 3)});
}

TEST(Attention, SurvivesScoresThatOverflow) {
  const Tensor q = Tensor::full(DType::kFloat32, {1, 2, 1, 4}, 300),
               v = random_tensor({1, 2, 1, 4}, 1).cast(DType::kFloat32);
  const Tensors got = run_kernel("Attention", {q, q, v}, kCases[0].attributes());
  for (int64_t d = 0; d < 4; ++d)
    EXPECT_NEAR(got[0].values<float>()[d], (v.values<float>()[d] + v.values<float>()[4 + d]) / 2,
                1e-6);
}

// dout, q, k, v, out, lse -> dq, dk, dv.
Tensors attention_grad(const Case& c, const Tensors& in) {
  Tensor dq = Tensor::zeros(DType::kFloat64, c.q()), dk = Tensor::zeros(DType::kFloat64, c.k()),
         dv = dk.clone();
  for_each_query(c, [&](int64_t b, int64_t h, int64_t i) {
    const auto s = scores(c, in[1], in[2], b, h, i);
    const int64_t qi = c.q_at(b, i, h);
    const double *dout = in[0].data<double>() + qi, *q = in[1].data<double>() + qi;
    const double delta = dot(dout, in[4].data<double>() + qi, c.size);
    for (int64_t j = 0; j < c.keys; ++j) {
      const int64_t kj = c.k_at(b, j, h);
      const double p = std::exp(s[j] - in[5].data<double>()[(b * c.heads + h) * c.queries + i]);
      const double ds = 0.4 * p * (dot(dout, in[3].data<double>() + kj, c.size) - delta);
      for (int64_t d = 0; d < c.size; ++d) {
        dv.data<double>()[kj + d] += p * dout[d];
        dk.data<double>()[kj + d] += ds * q[d];
        dq.data<double>()[qi + d] += ds * in[2].data<double>()[kj + d];
      }
    }
  });
  return {dq, dk, dv};
}

void check_gradient(const Case& c, const Tensors& qkv) {
  const Tensors forward = attention(c, qkv);
  check_kernel("AttentionGrad",
               {random_tensor(c.q(), 4), qkv[0], qkv[1], qkv[2], forward[0], forward[1]},
               c.attributes(),
               [&](const Tensors& in, const Attributes&) { return attention_grad(c, in); }, {5});
}

TEST(AttentionGrad, MatchesTheFormula) {
  for (const Case& c : kCases)
    check_gradient(c, {random_tensor(c.q(), 1), random_tensor(c.k(), 2), random_tensor(c.k(), 3)});
}

// Numbers of bfloat16, whose products add up without an error in float32, in any order.
Tensor random_bfloat16(const Shape& shape, uint64_t stream, double low, double high) {
  return random_tensor(shape, stream, low, high).cast(DType::kBFloat16).cast(DType::kFloat64);
}

// Scores of some -100: a key that is none, whose score of 0 is not masked, has an infinite weight,
// and so has a query that is none where its lse is taken for that of the next head.
TEST(AttentionOfLowScores, SeesNoKeysAndQueriesBeyondTheLast) {
  for (const int64_t queries : {1, 64, 65, 100})
    for (const int64_t keys : {64, 128, 192}) {
      const Case c = {1, queries, keys, 2, 64, false};
      const Tensors qkv = {random_bfloat16(c.q(), 1, 1.9, 2.1),
                           random_bfloat16(c.k(), 2, -2.1, -1.9), random_tensor(c.k(), 3)};
      check_attention(c, qkv);
      check_gradient(c, qkv);
    }
}

}  // namespace
}  // namespace cohort
