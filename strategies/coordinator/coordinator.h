#pragma once

// Everything about coordinators that a program may need.
#include "strategies/coordinator/cluster_coordinator.h"  // IWYU pragma: export
#include "strategies/coordinator/dataset_registry.h"     // IWYU pragma: export
#include "strategies/coordinator/end_of_data.h"          // IWYU pragma: export
#include "strategies/coordinator/worker_server.h"        // IWYU pragma: export
