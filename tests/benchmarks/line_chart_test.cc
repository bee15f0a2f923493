#include "benchmarks/line_chart.h"

#include <limits>

#include <gtest/gtest.h>

#include "core/base/error.h"

namespace cohort::benchmarks {
namespace {

size_t count(const std::string& text, const std::string& part) {
  size_t found = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

LineChart two_series() {
  return {.title = "a < b & \"c\"",
          .x_label = "workers",
          .y_label = "%",
          .series = {{"model", Mark::kLine, "#1f77b4", {{1, 100}, {1024, 50}}},
                     {"measured", Mark::kDots, "#d62728", {{1, 100}, {2, 93}, {4, 75}}}},
          .notes = {"one note"}};
}

TEST(LineChart, DrawsLinesDotsTicksAndLegend) {
  const std::string svg = to_svg(two_series());
  EXPECT_EQ(count(svg, "<polyline"), 1u);
  EXPECT_EQ(count(svg, "<circle"), 4u);  // three points, one in the legend
  for (const char* label : {">1</text>", ">2</text>", ">1024</text>", ">0</text>", ">100</text>",
                            ">workers</text>", ">model</text>", ">measured</text>", ">one note<"})
    EXPECT_EQ(count(svg, label), 1u) << label;
}

TEST(LineChart, TheFirstAndTheLastXAreTheEndsOfTheAxis) {
  const std::string svg = to_svg(two_series());
  // 80 to 830 pixels across; 90 pixels down is y = 100 and 470 is y = 0.
  EXPECT_EQ(count(svg, "points=\"80,90 830,280\""), 1u) << svg;
}

TEST(LineChart, EscapesText) {
  const std::string svg = to_svg(two_series());
  EXPECT_EQ(count(svg, "a &lt; b &amp; &quot;c&quot;"), 1u);
}

TEST(LineChart, AnAxisHasFourToTenTicks) {
  for (double largest : {0.003, 0.7, 1.0, 9.0, 10.0, 11.0, 99.0, 100.0, 104.0, 1e6}) {
    const double ticks = largest / tick_distance(largest);
    EXPECT_GE(ticks, 4) << largest;
    EXPECT_LE(ticks, 10) << largest;
  }
  EXPECT_DOUBLE_EQ(tick_distance(100), 10);
  EXPECT_DOUBLE_EQ(tick_distance(104), 20);
}

TEST(LineChart, RefusesPointsThatCannotBeDrawn) {
  const auto with_point = [](double x, double y) {
    LineChart chart = two_series();
    chart.series[1].points.push_back({x, y});
    return chart;
  };
  EXPECT_THROW(to_svg(with_point(0, 1)), Error);
  EXPECT_THROW(to_svg(with_point(1, -1)), Error);
  EXPECT_THROW(to_svg(with_point(1, std::numeric_limits<double>::quiet_NaN())), Error);
  EXPECT_THROW(to_svg(with_point(std::numeric_limits<double>::infinity(), 1)), Error);
  EXPECT_THROW(to_svg({.title = "empty"}), Error);
}

}  // namespace
}  // namespace cohort::benchmarks
