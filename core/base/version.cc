#include "core/base/version.h"

namespace cohort {

std::string_view library_version() { return COHORT_VERSION; }

}  // namespace cohort
