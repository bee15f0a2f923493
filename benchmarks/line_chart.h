#pragma once

#include <string>
#include <utility>
#include <vector>

namespace cohort::benchmarks {

enum class Mark { kLine, kDashedLine, kDots, kCircles };

// Points (x, y) under one entry of the legend.
struct Series {
  std::string label;
  Mark mark = Mark::kLine;
  std::string color;  // of SVG: "#1f77b4"
  std::vector<std::pair<double, double>> points;
};

// A chart over a logarithmic x axis with ticks at powers of two, and a linear y axis from 0.
struct LineChart {
  std::string title, x_label, y_label;
  std::vector<Series> series;
  std::vector<std::string> notes;  // lines below the chart
};

// The chart as an SVG document. kInvalidArgument, naming the series, for a point that is not
// finite, an x below 1, or a y below 0, and for a chart without points.
std::string to_svg(const LineChart& chart);

// The distance between ticks, one of 1, 2 or 5 times a power of ten, that gives an axis from 0 to
// `largest`, which is more than 0, between 4 and 10 of them.
double tick_distance(double largest);

}  // namespace cohort::benchmarks
