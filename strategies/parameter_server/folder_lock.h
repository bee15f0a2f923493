#pragma once

#include <string>

#include "strategies/cluster/net/descriptor.h"

namespace cohort::parameter_server {

// A folder that one server has to itself while this is alive: it is the process's, and ends with
// it. File systems without locks let everybody have it.
class FolderLock {
 public:
  // Makes the folder where it is missing. kFailedPrecondition, naming it, where another server has
  // it; one that ends within a second is waited for. Errors as those of files.
  explicit FolderLock(const std::string& folder);

 private:
  const net::Descriptor file_;
};

}  // namespace cohort::parameter_server
