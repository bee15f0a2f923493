#pragma once

#include <memory>
#include <string>

#include "core/distribute/strategy.h"

namespace cohort {

// One replica on the named device (tf.distribute.OneDeviceStrategy): code written for strategies,
// without distribution. kNotFound for a device that does not exist.
inline std::unique_ptr<Strategy> OneDeviceStrategy(const std::string& device = "cpu:0") {
  return make_single_device_strategy("OneDeviceStrategy", parse_device(device));
}

}  // namespace cohort
