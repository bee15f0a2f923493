#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <vector>

#include "core/data/synthetic.h"
#include "tests/data/testing.h"

namespace cohort::data {
namespace {

constexpr int kClasses = 10;
constexpr size_t kPixels = 28 * 28;

struct Digit {
  std::vector<float> pixels;
  size_t label;
};

std::vector<Digit> digits(const Dataset& dataset) {
  std::vector<Digit> out;
  for (const Element& element : dataset) {
    const auto pixels = element["image"].values<float>();
    out.push_back({{pixels.begin(), pixels.end()}, static_cast<size_t>(element["label"].item())});
  }
  return out;
}

// Logistic regression by plain stochastic gradient descent.
class LinearModel {
 public:
  size_t predict(const Digit& digit) const {
    const auto scores = scores_of(digit);
    return static_cast<size_t>(std::max_element(scores.begin(), scores.end()) - scores.begin());
  }

  void learn(const Digit& digit, float rate) {
    auto scores = scores_of(digit);
    const float highest = *std::max_element(scores.begin(), scores.end());
    for (float& score : scores) score = std::exp(score - highest);
    const float sum = std::accumulate(scores.begin(), scores.end(), 0.0F);
    for (size_t k = 0; k < kClasses; ++k) {
      const float step = rate * ((k == digit.label ? 1.0F : 0.0F) - scores[k] / sum);
      for (size_t i = 0; i < kPixels; ++i) weights_[k][i] += step * digit.pixels[i];
      biases_[k] += step;
    }
  }

 private:
  std::array<float, kClasses> scores_of(const Digit& digit) const {
    std::array<float, kClasses> scores = biases_;
    for (size_t k = 0; k < kClasses; ++k)
      for (size_t i = 0; i < kPixels; ++i) scores[k] += weights_[k][i] * digit.pixels[i];
    return scores;
  }

  std::array<std::array<float, kPixels>, kClasses> weights_{};
  std::array<float, kClasses> biases_{};
};

TEST(SyntheticDigits, DependOnTheSeedOnly) {
  const auto first = digits(synthetic_digits(5, 7)), again = digits(synthetic_digits(9, 7)),
             other = digits(synthetic_digits(5, 8));
  for (size_t i = 0; i < first.size(); ++i) {
    EXPECT_EQ(first[i].pixels, again[i].pixels) << i;
    EXPECT_EQ(first[i].label, again[i].label) << i;
    EXPECT_NE(first[i].pixels, other[i].pixels) << i;
  }
  expect_error([] { synthetic_digits(-1); }, Code::kInvalidArgument, {"-1"});
}

// So that a convolution has something to add; but each digit has a place of its own, too.
TEST(SyntheticDigits, AreMoreThanALinearModelLearns) {
  constexpr int kEpochs = 4;
  const Dataset all = synthetic_digits(12'000);
  const auto train = digits(all.take(10'000)), test = digits(all.skip(10'000));
  LinearModel model;
  for (int epoch = 0; epoch < kEpochs; ++epoch)
    for (const Digit& digit : train) model.learn(digit, 0.01F / static_cast<float>(1 + epoch));
  const auto right = std::count_if(test.begin(), test.end(), [&](const Digit& digit) {
    return model.predict(digit) == digit.label;
  });
  const double accuracy = static_cast<double>(right) / static_cast<double>(test.size());
  EXPECT_LT(accuracy, 0.95);
  EXPECT_GT(accuracy, 0.5);
}

}  // namespace
}  // namespace cohort::data
