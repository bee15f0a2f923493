#include "strategies/collective/communication_backend.h"

#include <utility>

#include "strategies/cluster/parsing.h"

namespace cohort {
namespace {

constexpr const char* kVariable = "COHORT_COLLECTIVE_BACKEND";

constexpr std::pair<CommunicationBackend, std::string_view> kNames[] = {
    {CommunicationBackend::kAuto, "auto"},
    {CommunicationBackend::kSharedMemory, "shm"},
    {CommunicationBackend::kTcp, "tcp"},
    {CommunicationBackend::kMpi, "mpi"},
};

}  // namespace

std::string_view backend_name(CommunicationBackend backend) {
  for (const auto& [known, name] : kNames)
    if (known == backend) return name;
  return "unknown";
}

CommunicationBackend backend_asked_for(CommunicationBackend backend,
                                       const Environment& environment) {
  if (backend != CommunicationBackend::kAuto) return backend;
  const auto text = environment(kVariable);
  if (!text) return backend;
  for (const auto& [known, name] : kNames)
    if (name == *text) return known;
  config::refuse(kVariable, quote(*text), "auto, shm, tcp or mpi", "COHORT_COLLECTIVE_BACKEND=tcp");
}

}  // namespace cohort
