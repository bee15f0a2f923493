#pragma once

#if __cplusplus < 202002L
#error "Cohort is for C++20: compile with -std=c++20"
#endif

// The whole of Cohort: what a program includes.
#include "core/base/error.h"                            // IWYU pragma: export
#include "core/base/file.h"                             // IWYU pragma: export
#include "core/base/flags.h"                            // IWYU pragma: export
#include "core/base/notice.h"                           // IWYU pragma: export
#include "core/base/program.h"                          // IWYU pragma: export
#include "core/base/random.h"                           // IWYU pragma: export
#include "core/base/temporary_folder.h"                 // IWYU pragma: export
#include "core/base/version.h"                          // IWYU pragma: export
#include "core/data/auto_shard.h"                       // IWYU pragma: export
#include "core/data/cifar.h"                            // IWYU pragma: export
#include "core/data/csv.h"                              // IWYU pragma: export
#include "core/data/dataset.h"                          // IWYU pragma: export
#include "core/data/distributed_dataset.h"              // IWYU pragma: export
#include "core/data/distributed_sampler.h"              // IWYU pragma: export
#include "core/data/files.h"                            // IWYU pragma: export
#include "core/data/idx.h"                              // IWYU pragma: export
#include "core/data/npy.h"                              // IWYU pragma: export
#include "core/data/synthetic.h"                        // IWYU pragma: export
#include "core/device/device.h"                         // IWYU pragma: export
#include "core/distribute/check_replicas.h"             // IWYU pragma: export
#include "core/distribute/strategy.h"                   // IWYU pragma: export
#include "core/graph/gradients.h"                       // IWYU pragma: export
#include "core/graph/serialization.h"                   // IWYU pragma: export
#include "core/kernels/common/tf32.h"                   // IWYU pragma: export
#include "core/nn/activations.h"                        // IWYU pragma: export
#include "core/nn/initializers.h"                       // IWYU pragma: export
#include "core/nn/layers.h"                             // IWYU pragma: export
#include "core/nn/losses.h"                             // IWYU pragma: export
#include "core/nn/metrics.h"                            // IWYU pragma: export
#include "core/nn/regularizers.h"                       // IWYU pragma: export
#include "core/ops/array_ops.h"                         // IWYU pragma: export
#include "core/ops/collective_ops.h"                    // IWYU pragma: export
#include "core/ops/control_flow.h"                      // IWYU pragma: export
#include "core/ops/custom_gradient.h"                   // IWYU pragma: export
#include "core/ops/embedding_ops.h"                     // IWYU pragma: export
#include "core/ops/math_ops.h"                          // IWYU pragma: export
#include "core/ops/nn_ops.h"                            // IWYU pragma: export
#include "core/ops/random_ops.h"                        // IWYU pragma: export
#include "core/ops/state_ops.h"                         // IWYU pragma: export
#include "core/optim/optimizers.h"                      // IWYU pragma: export
#include "core/optim/schedules.h"                       // IWYU pragma: export
#include "core/runtime/function.h"                      // IWYU pragma: export
#include "core/runtime/profiler.h"                      // IWYU pragma: export
#include "core/train/callbacks.h"                       // IWYU pragma: export
#include "core/train/evaluate_checkpoints.h"            // IWYU pragma: export
#include "core/train/event_file.h"                      // IWYU pragma: export
#include "core/train/model.h"                           // IWYU pragma: export
#include "core/train/safetensors.h"                     // IWYU pragma: export
#include "core/train/training.h"                        // IWYU pragma: export
#include "strategies/central_storage_strategy.h"        // IWYU pragma: export
#include "strategies/cluster/cluster.h"                 // IWYU pragma: export
#include "strategies/coordinator/coordinator.h"         // IWYU pragma: export
#include "strategies/mirrored_strategy.h"               // IWYU pragma: export
#include "strategies/mix_weights.h"                     // IWYU pragma: export
#include "strategies/multi_worker_mirrored_strategy.h"  // IWYU pragma: export
#include "strategies/one_device_strategy.h"             // IWYU pragma: export
#include "strategies/parameter_server_strategy.h"       // IWYU pragma: export
#include "strategies/process_group.h"                   // IWYU pragma: export
