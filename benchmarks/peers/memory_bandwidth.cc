// What the memory allows: THREADS threads, each with 100 MiB of float32 of its own, copy an array,
// and add one to another. The best of seven counts.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <thread>
#include <vector>

namespace {

constexpr size_t kBytes = size_t{100} << 20;
constexpr int kRepetitions = 7;

struct Arrays {
  std::vector<float> to = std::vector<float>(kBytes / sizeof(float), 1.0f);
  std::vector<float> from = std::vector<float>(kBytes / sizeof(float), 2.0f);
};

void copy(Arrays& arrays) { std::memcpy(arrays.to.data(), arrays.from.data(), kBytes); }

void add(Arrays& arrays) {
  float* to = arrays.to.data();
  const float* from = arrays.from.data();
  for (size_t i = 0; i < kBytes / sizeof(float); ++i) to[i] += from[i];
}

// Of what is written.
double gigabytes_per_second(std::vector<Arrays>& all, void (*work)(Arrays&)) {
  double best = 0;
  for (int i = 0; i < kRepetitions; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    std::vector<std::thread> threads;
    for (Arrays& arrays : all) threads.emplace_back(work, std::ref(arrays));
    for (std::thread& thread : threads) thread.join();
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
    best = std::max(best, static_cast<double>(all.size() * kBytes) / taken.count() / 1e9);
  }
  return best;
}

}  // namespace

int main(int argc, char** argv) {
  const int threads = argc == 2 ? std::atoi(argv[1]) : 0;
  if (threads < 1) return 64;
  std::vector<Arrays> all(static_cast<size_t>(threads));
  const double copied = gigabytes_per_second(all, copy), added = gigabytes_per_second(all, add);
  std::printf("memory threads=%d copy_GBs=%.2f add_GBs=%.2f\n", threads, copied, added);
}
