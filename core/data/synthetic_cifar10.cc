#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <numbers>

#include "core/base/error.h"
#include "core/base/file.h"
#include "core/base/random.h"
#include "core/data/synthetic.h"

namespace cohort::data {
namespace {

constexpr int kSide = 32, kPlane = kSide * kSide;

// Whether a point belongs to a class's shape, which lies in the unit disc.
bool covers(int label, double x, double y) {
  const double r = std::hypot(x, y);
  const auto in_band = [](double v) { return v - std::floor(v) < 0.5; };
  switch (label) {
    case 0:  // disc
      return r < 0.8;
    case 1:  // ring
      return r > 0.55 && r < 0.95;
    case 2:  // square
      return std::max(std::abs(x), std::abs(y)) < 0.7;
    case 3:  // triangle
      return y < 0.5 && y > std::numbers::sqrt3 * std::abs(x) - 1;
    case 4:  // cross
      return std::min(std::abs(x), std::abs(y)) < 0.25 && std::max(std::abs(x), std::abs(y)) < 0.95;
    case 5: {  // star of five points
      const double turn = std::atan2(y, x) * 5 / (2 * std::numbers::pi);
      return r < 0.35 + 1.3 * std::abs(turn - std::floor(turn) - 0.5);
    }
    case 6:  // crescent
      return r < 0.95 && std::hypot(x - 0.5, y) > 0.75;
    case 7:  // stripes
      return r < 0.95 && in_band(1.6 * x);
    case 8:  // checks
      return r < 0.95 && in_band(1.2 * x) != in_band(1.2 * y);
    default:  // two discs
      return std::hypot(std::abs(x) - 0.55, y) < 0.4;
  }
}

using Color = std::array<double, 3>;

// The random choices of one picture.
class Picture {
 public:
  Picture(int label, RandomStream& random) : label_(label), random_(random) {
    for (Color* color : {&shape_, &bar_}) {
      do *color = any_color();
      while (distance(*color, ground_[0]) < kContrast || distance(*color, ground_[1]) < kContrast);
    }
  }

  // Red, green and blue from 0 to 1 at a point in pixels.
  Color at(double x, double y) const {
    const double u = (x - center_x_) / radius_, v = (y - center_y_) / radius_;
    if (std::abs(bar_cos_ * u + bar_sin_ * v - bar_offset_) < kBarHalfWidth) return bar_;
    if (covers(label_, cos_ * u + sin_ * v, cos_ * v - sin_ * u)) return shape_;
    Color color;
    for (int i = 0; i < 3; ++i)
      color[i] = std::lerp(ground_[0][i], ground_[1][i], (x + y) / (2 * kSide));
    return color;
  }

 private:
  static constexpr double kContrast = 0.35, kBarHalfWidth = 0.12;

  static double distance(const Color& a, const Color& b) {
    return std::hypot(a[0] - b[0], a[1] - b[1], a[2] - b[2]);
  }
  double between(double low, double high) { return std::lerp(low, high, random_.uniform()); }
  double angle() { return between(0, 2 * std::numbers::pi); }
  Color any_color() { return {random_.uniform(), random_.uniform(), random_.uniform()}; }

  int label_;
  RandomStream& random_;
  double center_x_ = between(11, 21), center_y_ = between(11, 21), radius_ = between(7, 13);
  double turn_ = angle(), cos_ = std::cos(turn_), sin_ = std::sin(turn_);
  double bar_turn_ = angle(), bar_cos_ = std::cos(bar_turn_), bar_sin_ = std::sin(bar_turn_);
  double bar_offset_ = between(-1, 1);
  std::array<Color, 2> ground_ = {any_color(), any_color()};
  Color shape_{}, bar_{};
};

// A label, then the planes.
void append_record(int label, RandomStream& random, std::string& records) {
  constexpr int kSamples = 2;  // a side of a pixel: soft edges
  constexpr double kNoise = 0.25;
  const Picture picture(label, random);
  records += static_cast<char>(label);
  const size_t planes = records.size();
  records.resize(planes + 3 * kPlane);
  for (int pixel = 0; pixel < kPlane; ++pixel) {
    Color sum{};
    for (int sample = 0; sample < kSamples * kSamples; ++sample) {
      const Color color = picture.at(pixel % kSide + (sample % kSamples + 0.5) / kSamples,
                                     pixel / kSide + (sample / kSamples + 0.5) / kSamples);
      for (int i = 0; i < 3; ++i) sum[i] += color[i] / (kSamples * kSamples);
    }
    for (int i = 0; i < 3; ++i) {
      const double value = sum[i] + kNoise * (random.uniform() - 0.5);
      records[planes + i * kPlane + pixel] =
          static_cast<char>(static_cast<uint8_t>(255 * std::clamp(value, 0.0, 1.0)));
    }
  }
}

}  // namespace

void write_synthetic_cifar10(const std::string& dir, SyntheticCifar10Options options) {
  constexpr int kTrainFiles = 5;
  if (options.train < kTrainFiles || options.test < 1)
    invalid("write_synthetic_cifar10: ", options.train, " images to train on and ", options.test,
            " to test with are too few: at least ", kTrainFiles, " and 1");
  const auto path = [&](int file) {
    const std::string name =
        file == kTrainFiles ? "test_batch.bin" : str("data_batch_", file + 1, ".bin");
    return (std::filesystem::path(dir) / name).string();
  };
  create_folders(dir);
  for (int file = 0; file <= kTrainFiles; ++file)
    if (std::filesystem::exists(path(file)))
      fail(Code::kAlreadyExists, path(file), " exists and is not replaced by generated images");
  uint64_t image = 0;
  for (int file = 0; file <= kTrainFiles; ++file) {
    const uint64_t end = file == kTrainFiles ? options.train + options.test
                                             : options.train * (file + 1) / kTrainFiles;
    std::string records;
    for (; image < end; ++image) {
      RandomStream random(options.seed, image);
      append_record(static_cast<int>(random.below(10)), random, records);
    }
    write_file_atomically(path(file), records);
  }
}

}  // namespace cohort::data
