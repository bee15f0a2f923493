#pragma once

#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

namespace cohort {

// What compile() is told for the outputs of a model: one T, or a list of them, in order or by the
// names of the outputs: {{"price", loss_of_price}, {"kind", loss_of_kind}}.
template <typename T>
class PerOutput {
 public:
  struct Entry {
    // NOLINTNEXTLINE(google-explicit-constructor): a T is one for the output at its place.
    Entry(T given) : value(std::move(given)) {}
    Entry(std::string name, T given) : output(std::move(name)), value(std::move(given)) {}

    std::string output = {};  // its name; empty where the order tells
    T value;
  };

  PerOutput() = default;
  // What is written is one. NOLINTBEGIN(google-explicit-constructor)
  PerOutput(T only) : entries_{Entry(std::move(only))} {}
  PerOutput(std::initializer_list<Entry> entries) : entries_(entries) {}
  PerOutput(std::vector<Entry> entries) : entries_(std::move(entries)) {}
  PerOutput(const std::vector<T>& in_order) : entries_(in_order.begin(), in_order.end()) {}
  // NOLINTEND(google-explicit-constructor)

  const std::vector<Entry>& entries() const { return entries_; }

 private:
  std::vector<Entry> entries_;
};

}  // namespace cohort
