#pragma once

// Everything about clusters that a program may need.
#include "strategies/cluster/cluster_resolver.h"     // IWYU pragma: export
#include "strategies/cluster/cluster_roles.h"        // IWYU pragma: export
#include "strategies/cluster/cluster_spec.h"         // IWYU pragma: export
#include "strategies/cluster/kubernetes_resolver.h"  // IWYU pragma: export
#include "strategies/cluster/literal_resolver.h"     // IWYU pragma: export
#include "strategies/cluster/mpi_resolver.h"         // IWYU pragma: export
#include "strategies/cluster/resolve_cluster.h"      // IWYU pragma: export
#include "strategies/cluster/slurm_resolver.h"       // IWYU pragma: export
#include "strategies/cluster/tf_config_resolver.h"   // IWYU pragma: export
#include "strategies/cluster/torchrun_resolver.h"    // IWYU pragma: export
