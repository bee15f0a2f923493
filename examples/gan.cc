// A generative adversarial network that learns a ring of eight Gaussians, with a training step of
// its own: two models, two optimizers, two replicas.
#include <cmath>
#include <cstdio>
#include <numbers>
#include <set>

#include "cohort.h"

using namespace cohort;

namespace {

constexpr int64_t kModes = 8, kNoise = 8;
constexpr double kRadius = 1, kSpread = 0.08;

struct Point {
  double x, y;
};

Point mode(int64_t which) {
  const double angle = 2 * std::numbers::pi * static_cast<double>(which) / kModes;
  return {kRadius * std::cos(angle), kRadius * std::sin(angle)};
}

data::Dataset ring(int64_t rows) {
  Tensor points(DType::kFloat32, {rows, 2});
  RandomStream random(/*seed=*/1);
  for (int64_t i = 0; i < rows; ++i) {
    const auto [x, y] = mode(random.below(kModes));
    // Box and Muller's way to a pair of normal numbers.
    const double distance = kSpread * std::sqrt(-2 * std::log(1 - random.uniform())),
                 direction = 2 * std::numbers::pi * random.uniform();
    points.data<float>()[2 * i] = static_cast<float>(x + distance * std::cos(direction));
    points.data<float>()[2 * i + 1] = static_cast<float>(y + distance * std::sin(direction));
  }
  return data::from_tensor_slices({{"point", points}});
}

Model perceptron(int64_t outputs, const std::string& name) {
  return nn::Sequential({nn::Dense(64, {.activation = nn::relu}),
                         nn::Dense(64, {.activation = nn::relu}), nn::Dense(outputs)},
                        name);
}

// How well `points` match the ring: the fraction within three standard deviations of a mode, and
// how many modes have some.
struct Match {
  double near = 0;
  size_t modes = 0;
};
Match compare(const Tensor& points) {
  const int64_t rows = points.shape()[0];
  std::set<int64_t> reached;
  int64_t near = 0;
  for (int64_t i = 0; i < rows; ++i) {
    const double x = points.data<float>()[2 * i], y = points.data<float>()[2 * i + 1];
    for (int64_t which = 0; which < kModes; ++which) {
      if (std::hypot(x - mode(which).x, y - mode(which).y) > 3 * kSpread) continue;
      reached.insert(which);
      ++near;
    }
  }
  return {static_cast<double>(near) / static_cast<double>(rows), reached.size()};
}

}  // namespace

int main(int argc, char** argv) {
  return run_main([&] {
    Flags flags(argc, argv, "Trains a generative adversarial network on points of the plane.");
    const auto epochs = flags.integer("epochs", 120, "passes over the points", {.min = 1});
    const auto batch =
        flags.integer("batch", 256, "points in a step, over all replicas", {.min = 1});
    const auto replicas =
        flags.integer("replicas", 2, "replicas that share the cores", {.min = 1, .max = 64});
    flags.finish();

    set_logical_cpus(static_cast<int>(replicas));
    MirroredStrategy strategy;
    const auto scope = strategy.scope();
    const auto generator = perceptron(2, "generator"), critic = perceptron(1, "discriminator");
    const auto generate = [&](int64_t rows) {
      return generator(ops::random_normal({rows, kNoise}), {.training = true});
    };
    const auto points = strategy.distribute_dataset(ring(10'000).shuffle(10'000).batch(batch));
    const auto rate = optim::schedules::CosineDecay(
        0.001, static_cast<double>(epochs) *
                   static_cast<double>(points.cardinality()));  // settles both opponents
    // Names of their own, so that both can be saved together.
    const auto adam = [&](const std::string& name) {
      return optim::Adam(rate, {.beta_1 = 0.5, .name = name});
    };
    const optim::Optimizer generator_optimizer = adam("generator_optimizer"),
                           critic_optimizer = adam("critic_optimizer");

    const auto step = strategy.function([&](const BatchValues& points) -> std::vector<Value> {
      const Value real = points["point"], fake = generate(points.rows());
      // This replica's share of the mean over all replicas' points.
      const auto loss = [&](const Value& logits, double target) {
        const Value wanted =
            ops::broadcast_to(ops::constant(target, DType::kFloat32), logits.shape());
        return ops::reduce_sum(ops::sigmoid_cross_entropy(logits, wanted)) /
               static_cast<double>(points.global_rows());
      };
      const Value critic_loss = loss(critic(real), 1) + loss(critic(ops::stop_gradient(fake)), 0);
      critic_optimizer.minimize(critic_loss, critic.trainable_variables());
      const Value generator_loss = loss(critic(fake), 1);
      generator_optimizer.minimize(generator_loss, generator.trainable_variables());
      return {critic_loss, generator_loss};
    });
    const auto sample = strategy.function([&] { return generate(1'000); }, "sample");

    Match match;
    for (int64_t epoch = 1; epoch <= epochs; ++epoch) {
      double critic_loss = 0, generator_loss = 0;
      for (const auto& share : points) {
        const auto losses = strategy.run(step, share);
        critic_loss = strategy.reduce("sum", losses[0]).item();
        generator_loss = strategy.reduce("sum", losses[1]).item();
        if (interrupted()) fail(Code::kCancelled, "interrupted in epoch ", epoch);
      }
      match = compare(strategy.gather(strategy.run(sample), 0));
      if (epoch % 20 != 0 && epoch != epochs) continue;
      std::printf("epoch %ld: critic_loss=%.3f generator_loss=%.3f near=%.3f modes=%zu\n",
                  static_cast<long>(epoch), critic_loss, generator_loss, match.near, match.modes);
      std::fflush(stdout);  // into a pipe, too
    }
    std::printf("near=%.3f modes=%zu of %ld\n", match.near, match.modes, static_cast<long>(kModes));
  });
}
