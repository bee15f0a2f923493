#include "core/data/synthetic.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/base/random.h"
#include "core/data/table.h"

namespace cohort::data {
namespace {

constexpr int kSide = 28;
constexpr int kPixels = kSide * kSide;
constexpr float kWhite = 255;

struct Point {
  double x = 0, y = 0;
};
Point operator+(Point a, Point b) { return {a.x + b.x, a.y + b.y}; }
Point operator-(Point a, Point b) { return {a.x - b.x, a.y - b.y}; }
Point operator*(double s, Point p) { return {s * p.x, s * p.y}; }

using Stroke = std::vector<Point>;
using Glyph = std::vector<Stroke>;

// The ways to write each digit, in a box from -1 to 1 with y pointing down.
const std::vector<std::vector<Glyph>>& glyphs() {
  static const std::vector<std::vector<Glyph>> all = {
      {{{{0, -1},
         {.55, -.6},
         {.62, 0},
         {.5, .65},
         {0, 1},
         {-.55, .6},
         {-.62, 0},
         {-.5, -.65},
         {.05, -1}}}},
      {{{{0, -1}, {0, 1}}}, {{{-.35, -.6}, {.05, -1}}, {{.05, -1}, {.05, 1}}}},
      {{{{-.55, -.6}, {-.2, -1}, {.4, -.85}, {.5, -.4}, {0, .25}, {-.6, .95}},
        {{-.6, .95}, {.65, .95}}},
       {{{-.5, -.7}, {0, -1}, {.45, -.6}, {.1, .2}, {-.4, .9}, {-.5, .5}, {0, .7}, {.6, .95}}}},
      {{{{-.5, -.8}, {.1, -1}, {.5, -.6}, {.2, -.1}, {-.15, -.03}},
        {{-.15, -.03}, {.45, .15}, {.55, .6}, {.05, 1}, {-.55, .8}}}},
      {{{{.15, -1}, {-.6, .3}}, {{-.6, .3}, {.65, .3}}, {{.3, -.35}, {.3, 1}}},
       {{{-.5, -.9}, {-.5, -.2}, {-.2, .05}, {.45, 0}}, {{.45, -.9}, {.45, 0}, {.35, 1}}}},
      {{{{.55, -.95}, {-.4, -.95}},
        {{-.4, -.95}, {-.45, -.1}},
        {{-.45, -.1}, {.1, -.25}, {.55, .2}, {.35, .8}, {-.15, 1}, {-.6, .75}}}},
      {{{{.4, -.95},
         {-.2, -.5},
         {-.55, .2},
         {-.3, .9},
         {.25, .95},
         {.5, .5},
         {.2, .1},
         {-.3, .2},
         {-.5, .5}}}},
      {{{{-.6, -.95}, {.6, -.95}}, {{.6, -.95}, {.1, .1}, {-.1, 1}}},
       {{{-.6, -.95}, {.6, -.95}}, {{.6, -.95}, {.1, .1}, {-.1, 1}}, {{-.25, .05}, {.45, .05}}}},
      {{{{.3, -.85},
         {-.25, -.95},
         {-.45, -.55},
         {0, -.05},
         {.5, .45},
         {.35, .9},
         {-.15, 1},
         {-.5, .65},
         {-.1, .05},
         {.4, -.45},
         {.3, -.85}}}},
      {{{{.45, -.5}, {.05, -1}, {-.4, -.75}, {-.45, -.3}, {0, -.05}, {.4, -.25}, {.45, -.5}},
        {{.45, -.6}, {.4, .3}, {.1, 1}}}},
  };
  return all;
}

// The random choices that one writer makes for one digit.
class Hand {
 public:
  explicit Hand(RandomStream& random)
      : random_(random),
        slant_(spread(0.35)),
        angle_(spread(0.25)),
        size_{8.0 + spread(1.8), 9.0 + spread(1.6)},
        center_{kSide / 2.0 + spread(2.5), kSide / 2.0 + spread(2.5)},
        radius_(1.1 + spread(0.6)) {}

  double radius() const { return radius_; }
  // Where the pen goes for a point of a glyph, in pixels.
  Point place(Point p) {
    constexpr double kUnsteadiness = 0.09;
    p = p + Point{spread(kUnsteadiness), spread(kUnsteadiness)};
    p = {size_.x * (p.x - slant_ * p.y), size_.y * p.y};
    const double c = std::cos(angle_), s = std::sin(angle_);
    return center_ + Point{c * p.x - s * p.y, s * p.x + c * p.y};
  }

 private:
  double spread(double half_width) { return (2 * random_.uniform() - 1) * half_width; }

  RandomStream& random_;
  double slant_, angle_;
  Point size_, center_;
  double radius_;
};

double distance(Point p, Point a, Point b) {
  const Point along = b - a, offset = p - a;
  const double length2 = along.x * along.x + along.y * along.y;
  const double t =
      length2 > 0 ? std::clamp((offset.x * along.x + offset.y * along.y) / length2, 0.0, 1.0) : 0;
  const Point gap = offset - t * along;
  return std::hypot(gap.x, gap.y);
}

// Darkens the pixels near a line; its edge is one pixel wide.
void draw_line(std::vector<double>& ink, Point a, Point b, double radius) {
  const auto first = [&](double v) { return std::max(0, static_cast<int>(v - radius - 1)); };
  const auto last = [&](double v) { return std::min(kSide - 1, static_cast<int>(v + radius + 1)); };
  for (int y = first(std::min(a.y, b.y)); y <= last(std::max(a.y, b.y)); ++y) {
    for (int x = first(std::min(a.x, b.x)); x <= last(std::max(a.x, b.x)); ++x) {
      const double cover = std::clamp(radius + 0.5 - distance({x + 0.5, y + 0.5}, a, b), 0.0, 1.0);
      ink[y * kSide + x] = std::max(ink[y * kSide + x], cover);
    }
  }
}

// A Catmull-Rom spline through the points.
void draw_stroke(std::vector<double>& ink, const Stroke& points, double radius) {
  constexpr int kLinesPerSpan = 5;
  const int last = static_cast<int>(points.size()) - 1;
  for (int i = 0; i < last; ++i) {
    const Point &before = points[std::max(0, i - 1)], &p = points[i], &q = points[i + 1],
                &after = points[std::min(last, i + 2)];
    const Point p_slope = 0.5 * (q - before), q_slope = 0.5 * (after - p);
    Point from = p;
    for (int line = 1; line <= kLinesPerSpan; ++line) {
      const double t = static_cast<double>(line) / kLinesPerSpan, u = 1 - t;
      const Point to =
          u * u * ((1 + 2 * t) * p + t * p_slope) + t * t * ((1 + 2 * u) * q - u * q_slope);
      draw_line(ink, from, to, radius);
      from = to;
    }
  }
}

void draw_digit(int digit, RandomStream& random, uint8_t* image) {
  constexpr double kNoise = 0.18;
  const auto& styles = glyphs()[digit];
  const Glyph& glyph = styles[random.below(styles.size())];
  Hand hand(random);
  std::vector<double> ink(kPixels);
  for (Stroke stroke : glyph) {
    for (Point& point : stroke) point = hand.place(point);
    draw_stroke(ink, stroke, hand.radius());
  }
  const double contrast = 0.6 + 0.4 * random.uniform();
  for (int i = 0; i < kPixels; ++i) {
    const double value = contrast * ink[i] + kNoise * (random.uniform() - 0.5);
    image[i] = static_cast<uint8_t>(kWhite * std::clamp(value, 0.0, 1.0));
  }
}

}  // namespace

Dataset synthetic_digits(int64_t count, uint64_t seed) {
  if (count < 0) invalid("synthetic_digits: the count must not be negative, got ", count);
  Tensor images(DType::kUInt8, {count, kSide, kSide, 1}), labels(DType::kInt32, {count});
  for (int64_t i = 0; i < count; ++i) {
    RandomStream random(seed, static_cast<uint64_t>(i));
    const auto digit = static_cast<int>(random.below(10));
    labels.data<int32_t>()[i] = digit;
    draw_digit(digit, random, images.data<uint8_t>() + i * kPixels);
  }
  return from_table(std::make_shared<Table>(
      std::vector<Table::Column>{{"image", images, kWhite}, {"label", labels, std::nullopt}}));
}

}  // namespace cohort::data
