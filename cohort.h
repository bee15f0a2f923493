#pragma once

// The whole of Cohort: what a program includes.
#include "core/base/error.h"                 // IWYU pragma: export
#include "core/base/flags.h"                 // IWYU pragma: export
#include "core/base/program.h"               // IWYU pragma: export
#include "core/base/random.h"                // IWYU pragma: export
#include "core/data/cifar.h"                 // IWYU pragma: export
#include "core/data/csv.h"                   // IWYU pragma: export
#include "core/data/dataset.h"               // IWYU pragma: export
#include "core/data/idx.h"                   // IWYU pragma: export
#include "core/data/npy.h"                   // IWYU pragma: export
#include "core/data/synthetic.h"             // IWYU pragma: export
#include "core/device/device.h"              // IWYU pragma: export
#include "core/distribute/strategy.h"        // IWYU pragma: export
#include "core/graph/gradients.h"            // IWYU pragma: export
#include "core/nn/activations.h"             // IWYU pragma: export
#include "core/nn/initializers.h"            // IWYU pragma: export
#include "core/nn/layers.h"                  // IWYU pragma: export
#include "core/nn/losses.h"                  // IWYU pragma: export
#include "core/nn/metrics.h"                 // IWYU pragma: export
#include "core/nn/regularizers.h"            // IWYU pragma: export
#include "core/ops/array_ops.h"              // IWYU pragma: export
#include "core/ops/collective_ops.h"         // IWYU pragma: export
#include "core/ops/math_ops.h"               // IWYU pragma: export
#include "core/ops/nn_ops.h"                 // IWYU pragma: export
#include "core/ops/random_ops.h"             // IWYU pragma: export
#include "core/ops/state_ops.h"              // IWYU pragma: export
#include "core/optim/optimizers.h"           // IWYU pragma: export
#include "core/optim/schedules.h"            // IWYU pragma: export
#include "core/runtime/function.h"           // IWYU pragma: export
#include "core/runtime/profiler.h"           // IWYU pragma: export
#include "core/train/callbacks.h"            // IWYU pragma: export
#include "core/train/model.h"                // IWYU pragma: export
#include "core/train/safetensors.h"          // IWYU pragma: export
#include "core/train/training.h"             // IWYU pragma: export
#include "strategies/mirrored_strategy.h"    // IWYU pragma: export
#include "strategies/one_device_strategy.h"  // IWYU pragma: export
