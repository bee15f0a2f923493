#include "core/distribute/communication_options.h"

#include <algorithm>
#include <cctype>
#include <string>

#include "core/base/error.h"
#include "core/base/time_limits.h"

namespace cohort {

CommunicationImplementation communication_implementation_from_name(std::string_view name) {
  std::string lower(name);
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  if (lower == "auto") return CommunicationImplementation::kAuto;
  if (lower == "ring") return CommunicationImplementation::kRing;
  if (lower == "nccl") return CommunicationImplementation::kNccl;
  invalid("\"", name, "\" is not a communication implementation; allowed are auto, ring, nccl");
}

void CommunicationOptions::validate() const {
  if (bytes_per_pack < 0) invalid("bytes_per_pack must be 0 or more, got ", bytes_per_pack);
  if (timeout_seconds && !(*timeout_seconds > 0))
    invalid("timeout_seconds must be positive, got ", *timeout_seconds);
}

std::optional<std::chrono::milliseconds> CommunicationOptions::limit() const {
  if (!timeout_seconds) return std::nullopt;
  return clamped_seconds(*timeout_seconds);
}

CommunicationOptions CommunicationOptions::merge(const CommunicationOptions& other) const {
  CommunicationOptions merged = *this;
  if (other.bytes_per_pack != 0) merged.bytes_per_pack = other.bytes_per_pack;
  if (other.timeout_seconds) merged.timeout_seconds = other.timeout_seconds;
  if (other.implementation != CommunicationImplementation::kAuto)
    merged.implementation = other.implementation;
  return merged;
}

}  // namespace cohort
