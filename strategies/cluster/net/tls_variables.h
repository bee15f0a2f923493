#pragma once

namespace cohort::net {

// For messages about who speaks TLS: the variables that give a task its certificates.
inline constexpr const char* kTlsVariables = "(COHORT_TLS_CERT, COHORT_TLS_KEY, COHORT_TLS_CA)";

}  // namespace cohort::net
