#pragma once

#include <string>

namespace cohort::parameter_server {

// Makes the names of a folder's files outlive the host. An error that names the folder where the
// system does not (core/base/system_error.h).
void sync_folder(const std::string& path);

}  // namespace cohort::parameter_server
