#include "strategies/coordinator/present_error.h"

#include <exception>
#include <new>

namespace cohort::coordinator {

Error present_error() {
  try {
    throw;
  } catch (const Error& error) {
    return error;
  } catch (const std::bad_alloc&) {
    return Error(Code::kResourceExhausted, "there is no memory for it");
  } catch (const std::exception& error) {
    return Error(Code::kUnknown, error.what());
  } catch (...) {
    return Error(Code::kUnknown, "something has been thrown that is no std::exception");
  }
}

}  // namespace cohort::coordinator
