#include <vector>

#include "core/data/synthetic.h"
#include "tests/data/testing.h"

namespace cohort::data {
namespace {

struct Digit {
  std::vector<float> pixels;
  size_t label;
};

std::vector<Digit> digits(const Dataset& dataset) {
  std::vector<Digit> out;
  for (const Element& element : dataset) {
    EXPECT_EQ(element["image"].shape(), (Shape{28, 28, 1}));
    const auto pixels = element["image"].values<float>();
    out.push_back({{pixels.begin(), pixels.end()}, static_cast<size_t>(element["label"].item())});
  }
  return out;
}

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

}  // namespace
}  // namespace cohort::data
