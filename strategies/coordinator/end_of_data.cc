#include "strategies/coordinator/end_of_data.h"

#include <string_view>

namespace cohort {
namespace {

// All that an error still has when it has come from its worker are a code and a text, in front of
// which everyone on its way has put a context.
constexpr std::string_view kEnding = "\" is at its end";

}  // namespace

bool is_end_of_data(const Error& error) {
  return error.code() == Code::kOutOfRange && error.message().ends_with(kEnding);
}

Error coordinator::end_of_data(const std::string& dataset, const std::string& worker) {
  return Error(Code::kOutOfRange, str("dataset \"", dataset, kEnding), worker);
}

}  // namespace cohort
