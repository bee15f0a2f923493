// Windows of elements that follow one another.

#include <algorithm>

#include "tests/data/testing.h"

namespace cohort::data {
namespace {

using Values = std::vector<int64_t>;
using Windows = std::vector<Values>;

Windows windows(const Dataset& dataset) {
  Windows all;
  for (auto& window : dataset) {
    const auto here = window["value"].values<int64_t>();
    all.emplace_back(here.begin(), here.end());
  }
  return all;
}

TEST(Window, FollowsTheLastOneUnlessItHasAShift) {
  EXPECT_EQ(windows(range(7).window(3)), (Windows{{0, 1, 2}, {3, 4, 5}, {6}}));
  EXPECT_EQ(windows(range(4).window(3, {.shift = 1})),
            (Windows{{0, 1, 2}, {1, 2, 3}, {2, 3}, {3}}));
  EXPECT_EQ(windows(range(8).window(2, {.shift = 3})), (Windows{{0, 1}, {3, 4}, {6, 7}}));
  EXPECT_EQ(windows(range(0).window(2)), Windows());
}

TEST(Window, TakesEachStridethElement) {
  EXPECT_EQ(windows(range(7).window(3, {.shift = 1, .stride = 2, .drop_remainder = true})),
            (Windows{{0, 2, 4}, {1, 3, 5}, {2, 4, 6}}));
  EXPECT_EQ(windows(range(5).window(2, {.stride = 3})), (Windows{{0, 3}, {2}, {4}}));
}

TEST(Window, IsWhatItsDefinitionSays) {
  for (int64_t count = 0; count < 10; ++count)
    for (int64_t size = 1; size < 5; ++size)
      for (int64_t shift = 1; shift < 6; ++shift)
        for (int64_t stride = 1; stride < 4; ++stride)
          for (const bool drop : {false, true}) {
            SCOPED_TRACE(str(count, " elements, size ", size, ", shift ", shift, ", stride ",
                             stride, drop ? ", drop" : ""));
            Windows expected;
            for (int64_t start = 0; start < count; start += shift) {
              Values window;
              for (int64_t i = 0; i < size && start + i * stride < count; ++i)
                window.push_back(start + i * stride);
              if (!drop || static_cast<int64_t>(window.size()) == size) expected.push_back(window);
            }
            const Dataset dataset = range(count).window(
                size, {.shift = shift, .stride = stride, .drop_remainder = drop});
            EXPECT_EQ(windows(dataset), expected);
            EXPECT_EQ(dataset.cardinality(), static_cast<int64_t>(expected.size()));
            EXPECT_EQ(windows(dataset.skip(2)),
                      Windows(expected.begin() + std::min<int64_t>(2, dataset.cardinality()),
                              expected.end()));
          }
}

TEST(Window, IsAnElementWithAnAxisMore) {
  const Dataset rows = from_tensor_slices({{"x", Tensor::zeros(DType::kFloat32, {9, 2})}});
  const auto batch = rows.window(4, {.shift = 1, .drop_remainder = true}).batch(3).iterate().next();
  ASSERT_TRUE(batch);
  EXPECT_EQ((*batch)["x"].shape(), Shape({3, 4, 2}));
}

TEST(Window, GoesOverAnEndlessDataset) {
  const Dataset dataset = range(3).repeat().window(4, {.shift = 2});
  EXPECT_EQ(dataset.cardinality(), kInfinite);
  EXPECT_EQ(windows(dataset.take(3)), (Windows{{0, 1, 2, 0}, {2, 0, 1, 2}, {1, 2, 0, 1}}));
}

TEST(Window, NamesTheElementThatDiffers) {
  const Dataset ragged = range(9).map([](const Element& e) {
    return Element{{"value", Tensor::zeros(DType::kInt64, {e["value"].item() < 6 ? 1 : 2})}};
  });
  Iterator iterator = ragged.window(3, {.shift = 1, .stride = 2}).iterate();
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(iterator.next());
  expect_error([&] { iterator.next(); }, Code::kInvalidArgument,
               {"window(): element 6 ", "starts at element 2", "int64[2]", "int64[1]"});
}

TEST(Window, RefusesSizesThatMeanNothing) {
  const auto refused = [](int64_t size, const WindowOptions& options, const std::string& text) {
    expect_error([&] { range(9).window(size, options); }, Code::kInvalidArgument,
                 {"window(", text});
  };
  refused(0, {}, "window(0)");
  refused(2, {.shift = 0}, "shift 0");
  refused(2, {.stride = -1}, "stride -1");
  refused(INT64_MAX, {.stride = 2}, "more than 2^63");
  EXPECT_EQ(windows(range(2).window(INT64_MAX, {.shift = INT64_MAX})), (Windows{{0, 1}}));
  EXPECT_EQ(windows(range(2).window(1, {.shift = 1, .stride = INT64_MAX})), (Windows{{0}, {1}}));
}

}  // namespace
}  // namespace cohort::data
