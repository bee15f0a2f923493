#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

namespace cohort {

// How far a loop of steps has come, for people.
struct Progress {
  int64_t step = 0;              // steps done
  std::optional<int64_t> steps;  // of how many, where that is known
  double seconds = 0;            // since the loop began
  int64_t examples = 0;          // rows seen so far
  std::map<std::string, double> values;
  std::optional<int64_t> width;  // columns that the line may take; without it, any number
};

// One line without a line break, with a shorter bar and without its end where it would be too wide:
//   12/100 [==>...........................] - ETA: 22s 25ms/step 1280 examples/s - loss: 0.3012
// and, once step has reached steps,
//   100/100 [==============================] - 3s 25ms/step 1280 examples/s - loss: 0.2100
std::string progress_line(const Progress& progress);

// "3s", "2:05" or "1:02:05".
std::string format_duration(double seconds);
// Four decimals, or an exponent where they would show nothing: "0.3012", "3.1000e-05".
std::string format_metric(double value);

// Whether `descriptor` is a terminal on which a line can be drawn over ($TERM is not "dumb").
bool is_live_terminal(int descriptor);
// The columns of the terminal `descriptor`; nothing where it is none or does not say.
std::optional<int64_t> terminal_width(int descriptor);

}  // namespace cohort
