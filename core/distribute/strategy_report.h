#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace cohort {

// How often each number has occurred.
using Histogram = std::map<int64_t, int64_t>;

// What a strategy has to say about the steps that it ran, beyond their results.
struct StrategyReport {
  std::map<std::string, double> numbers;
  std::map<std::string, Histogram> histograms;
};

}  // namespace cohort
