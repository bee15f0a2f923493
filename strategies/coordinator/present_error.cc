#include "strategies/coordinator/present_error.h"

#include <exception>

#include "core/distribute/workers.h"

namespace cohort::coordinator {

Error present_error() {
  try {
    throw;
  } catch (const Error& error) {
    return error;
  } catch (const std::exception& error) {
    return error_for_others(error);
  } catch (...) {
    return Error(Code::kAborted, "something has been thrown that is no std::exception");
  }
}

}  // namespace cohort::coordinator
