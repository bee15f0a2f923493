#pragma once

#include <string>

namespace cohort::parameter_server {

// Makes the names of a folder's files outlive the host. kResourceExhausted naming the folder where
// the system does not.
void sync_folder(const std::string& path);

}  // namespace cohort::parameter_server
