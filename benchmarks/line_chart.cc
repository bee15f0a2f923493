#include "benchmarks/line_chart.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "core/base/error.h"

namespace cohort::benchmarks {
namespace {

// In pixels.
constexpr double kWidth = 860, kPlotHeight = 380;
constexpr double kLeft = 80, kRight = 30, kTop = 90, kBottom = 64, kLine = 18;

std::string escaped(const std::string& text) {
  std::string out;
  for (char c : text) {
    if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else if (c == '&')
      out += "&amp;";
    else if (c == '"')
      out += "&quot;";
    else
      out += c;
  }
  return out;
}

// A coordinate or label, without needless digits.
std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.6g", std::round(value * 1e6) / 1e6);
  return text;
}

class Drawing {
 public:
  explicit Drawing(const LineChart& chart) : chart_(chart) {
    for (const Series& series : chart.series)
      for (const auto& [x, y] : series.points) include(series, x, y);
    if (largest_x_ == 0) invalid("the chart \"", chart.title, "\" has no points");
    if (largest_y_ == 0) largest_y_ = 1;
    doublings_ = std::max(1.0, std::ceil(std::log2(largest_x_)));
    distance_ = tick_distance(largest_y_);
    top_ = distance_ * std::ceil(largest_y_ / distance_ - 1e-9);
  }

  std::string svg() {
    const double height =
        kTop + kPlotHeight + kBottom + kLine * static_cast<double>(chart_.notes.size() + 1);
    put("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"", number(kWidth), "\" height=\"",
        number(height), "\" viewBox=\"0 0 ", number(kWidth), " ", number(height),
        "\" font-family=\"DejaVu Sans, Helvetica, Arial, sans-serif\" font-size=\"13\">");
    put("<rect width=\"100%\" height=\"100%\" fill=\"white\"/>");
    text(kLeft, 28, "start", chart_.title, " font-size=\"17\" font-weight=\"bold\"");
    axes();
    for (const Series& series : chart_.series) draw(series);
    legend();
    double y = kTop + kPlotHeight + kBottom + kLine / 2;
    for (const std::string& note : chart_.notes)
      text(kLeft, y += kLine, "start", note, " font-size=\"12\" fill=\"#444\"");
    put("</svg>");
    return out_;
  }

 private:
  template <typename... Parts>
  void put(const Parts&... parts) {
    out_ += str(parts..., "\n");
  }

  void include(const Series& series, double x, double y) {
    if (!std::isfinite(x) || !std::isfinite(y) || x < 1 || y < 0)
      invalid("\"", series.label, "\" has the point (", x, ", ", y,
              "); it has to be finite, with x of 1 or more and y of 0 or more");
    largest_x_ = std::max(largest_x_, x);
    largest_y_ = std::max(largest_y_, y);
  }

  double at_x(double x) const {
    return kLeft + std::log2(x) / doublings_ * (kWidth - kLeft - kRight);
  }
  double at_y(double y) const { return kTop + (1 - y / top_) * kPlotHeight; }

  void text(double x, double y, const char* anchor, const std::string& what,
            const std::string& attributes = "") {
    put("<text x=\"", number(x), "\" y=\"", number(y), "\" text-anchor=\"", anchor, "\"",
        attributes, ">", escaped(what), "</text>");
  }
  void line(double x1, double y1, double x2, double y2, const std::string& attributes) {
    put("<line x1=\"", number(x1), "\" y1=\"", number(y1), "\" x2=\"", number(x2), "\" y2=\"",
        number(y2), "\" ", attributes, "/>");
  }

  void axes() {
    constexpr auto kGrid = "stroke=\"#ddd\"";
    constexpr auto kAxis = "stroke=\"#333\"";
    // Beyond some 16 labels, every second or third power of two.
    const int stride = 1 + static_cast<int>(doublings_) / 16;
    for (int k = 0; k <= static_cast<int>(doublings_); k += stride) {
      const double x = at_x(std::exp2(k));
      line(x, at_y(0), x, at_y(top_), kGrid);
      line(x, at_y(0), x, at_y(0) + 5, kAxis);
      text(x, at_y(0) + 20, "middle", number(std::exp2(k)));
    }
    for (int k = 0; k * distance_ <= top_ * (1 + 1e-9); ++k) {
      const double y = at_y(k * distance_);
      line(kLeft, y, kWidth - kRight, y, kGrid);
      line(kLeft - 5, y, kLeft, y, kAxis);
      text(kLeft - 9, y + 4.5, "end", number(k * distance_));
    }
    line(kLeft, at_y(0), kWidth - kRight, at_y(0), kAxis);
    line(kLeft, at_y(0), kLeft, at_y(top_), kAxis);
    text((kLeft + kWidth - kRight) / 2, at_y(0) + 46, "middle", chart_.x_label);
    const double middle = kTop + kPlotHeight / 2;
    text(24, middle, "middle", chart_.y_label,
         str(" transform=\"rotate(-90 24 ", number(middle), ")\""));
  }

  void draw(const Series& series) {
    const bool is_line = series.mark == Mark::kLine || series.mark == Mark::kDashedLine;
    std::string path;
    for (const auto& [x, y] : series.points) {
      if (is_line)
        path += str(path.empty() ? "" : " ", number(at_x(x)), ",", number(at_y(y)));
      else
        dot(series, at_x(x), at_y(y));
    }
    if (!path.empty()) put("<polyline points=\"", path, "\" fill=\"none\" ", stroke(series), "/>");
  }

  std::string stroke(const Series& series) const {
    return str("stroke=\"", escaped(series.color), "\" stroke-width=\"2\"",
               series.mark == Mark::kDashedLine ? " stroke-dasharray=\"6 5\"" : "");
  }

  void dot(const Series& series, double x, double y) {
    put("<circle cx=\"", number(x), "\" cy=\"", number(y), "\" r=\"5\" fill=\"",
        series.mark == Mark::kDots ? escaped(series.color) : "white", "\" ", stroke(series), "/>");
  }

  // One row of entries between the title and the plot.
  void legend() {
    constexpr double kY = 58, kSample = 28, kLetter = 7.6, kGap = 28;
    double x = kLeft;
    for (const Series& series : chart_.series) {
      if (series.points.empty()) continue;
      if (series.mark == Mark::kLine || series.mark == Mark::kDashedLine)
        line(x, kY - 4, x + kSample, kY - 4, stroke(series));
      else
        dot(series, x + kSample / 2, kY - 4);
      text(x + kSample + 6, kY, "start", series.label);
      x += kSample + 6 + kLetter * static_cast<double>(series.label.size()) + kGap;
    }
  }

  const LineChart& chart_;
  double largest_x_ = 0, largest_y_ = 0;
  double doublings_ = 1;  // of x, from 1 to the right end
  double distance_ = 1;   // of the ticks of y
  double top_ = 1;        // y there
  std::string out_;
};

}  // namespace

double tick_distance(double largest) {
  constexpr int kMostTicks = 10;
  double power = std::pow(10, std::floor(std::log10(largest)) - 1);
  for (;; power *= 10)
    for (double factor : {1, 2, 5})
      if (largest / (factor * power) <= kMostTicks) return factor * power;
}

std::string to_svg(const LineChart& chart) { return Drawing(chart).svg(); }

}  // namespace cohort::benchmarks
