#pragma once

#include <string_view>

namespace cohort {

// Hears of it where a strategy over devices of this process alone is made, or fit() is called
// without any; `who` says which. On any thread.
using OwnDevicesListener = void (*)(std::string_view who);

// For those who know of clusters, of which core does not: before main(), once.
void set_own_devices_listener(OwnDevicesListener listener);
void note_own_devices(std::string_view who);

}  // namespace cohort
