#include "core/distribute/own_devices.h"

namespace cohort {

namespace {
constinit OwnDevicesListener g_listener = nullptr;
}  // namespace

void set_own_devices_listener(OwnDevicesListener listener) { g_listener = listener; }

void note_own_devices(std::string_view who) {
  if (g_listener != nullptr) g_listener(who);
}

}  // namespace cohort
