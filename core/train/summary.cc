#include <algorithm>
#include <iomanip>
#include <map>

#include "core/train/model.h"

namespace cohort {
namespace {

// 34826 becomes "34,826".
std::string with_thousands(int64_t number) {
  std::string text = std::to_string(number);
  for (auto at = static_cast<int>(text.size()) - 3; at > 0; at -= 3) text.insert(at, ",");
  return text;
}

// A line for each device that runs a replica or holds a variable.
std::string memory_lines(const std::vector<Device>& replicas, const Variables& variables) {
  std::map<Device, int64_t> bytes;
  for (const Device device : replicas) bytes[device] = 0;
  for (const auto& variable : variables)
    for (const Device device : variable->devices())
      bytes[device] += static_cast<int64_t>(variable->spec().bytes());
  std::ostringstream out;
  for (const auto& [device, held] : bytes)
    out << "Variables on " << device << ": " << with_thousands(held) << " B\n";
  return out.str();
}

}  // namespace

std::string Model::summary() const {
  const nn::Layer& network = this->network();
  if (!network.built()) {
    fail(Code::kFailedPrecondition,
         "summary: the shapes are not known yet: call build() or fit() first");
  }
  std::vector<std::array<std::string, 3>> rows = {{"Layer (type)", "Output shape", "Parameters"}};
  auto layers = network.sublayers();
  if (layers.empty()) layers = {network};
  for (const nn::Layer& layer : layers) {
    const nn::LayerSummary line = layer.summary();
    rows.push_back({str(line.name, " (", line.type, ")"), str(line.output_shape),
                    with_thousands(line.parameters)});
  }
  std::array<size_t, 3> widths{};
  for (const auto& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::ostringstream out;
  for (const auto& row : rows) {
    out << std::left << std::setw(static_cast<int>(widths[0]) + 2) << row[0]
        << std::setw(static_cast<int>(widths[1]) + 2) << row[1] << std::right
        << std::setw(static_cast<int>(widths[2])) << row[2] << '\n';
  }
  const nn::LayerSummary total = network.summary();
  out << "Total parameters: " << with_thousands(total.parameters) << '\n'
      << "Trainable parameters: " << with_thousands(total.trainable_parameters) << '\n'
      << "Non-trainable parameters: "
      << with_thousands(total.parameters - total.trainable_parameters) << '\n';
  if (strategy().num_replicas_in_sync() > 1)
    out << memory_lines(strategy().devices(), all_variables());
  if (const FunctionMemory memory = step_memory(); memory.plans > 0)
    out << "Compiled steps: " << memory.plans << ", which hold "
        << with_thousands(static_cast<int64_t>(memory.bytes)) << " B\n";
  return out.str();
}

}  // namespace cohort
